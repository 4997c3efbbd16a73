"""Programs that show the numbers of a training."""

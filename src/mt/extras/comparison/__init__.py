"""Two or more systems on the same test set: which is better, and where they differ."""

"""Reports of a training run and attention maps."""

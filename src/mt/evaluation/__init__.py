"""A model on a test set."""

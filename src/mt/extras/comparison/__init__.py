"""Comparison of two or more systems on the same test set."""

"""Evaluation of a model on validation and test sets."""

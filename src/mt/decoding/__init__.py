"""Decoding: search over a trained model, and translation of strings."""

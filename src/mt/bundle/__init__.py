"""The model folder: save, check, load."""

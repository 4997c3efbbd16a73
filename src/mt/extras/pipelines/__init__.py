"""Pipelines: recipes of several commands in one file."""

"""Metrics: pure functions of text."""

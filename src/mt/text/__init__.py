"""Text utilities that every layer may use."""

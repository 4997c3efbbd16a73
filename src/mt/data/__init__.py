"""Text in, batches of numbers out."""

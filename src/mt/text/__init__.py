"""Text files: lines, compression, languages, sentences."""

"""Documents: files with structure, of which only the text is translated."""

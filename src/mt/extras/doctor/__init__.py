"""Corpus checking and cleaning: `mt data check` and `mt data clean`."""

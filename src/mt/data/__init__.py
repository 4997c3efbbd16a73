"""Corpora, tokenizers and batches: from text files to arrays of token ids."""

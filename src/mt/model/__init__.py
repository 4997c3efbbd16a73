"""The Transformer: tensors in, tensors out; it knows nothing of files, text or training."""

"""The Transformer: tensors in, tensors out, independent of files, text and training."""

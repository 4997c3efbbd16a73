"""From a trained model to translations: search, and strings in, strings out."""

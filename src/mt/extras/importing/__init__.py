"""Models of other software as model folders: Hugging Face transformers, Marian and CTranslate2."""

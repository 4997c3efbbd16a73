"""Models for other software: CTranslate2, Hugging Face transformers, ONNX Runtime and Argos Translate."""

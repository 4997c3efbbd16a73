"""A translation server with LibreTranslate's interface, so that its clients work with our models."""

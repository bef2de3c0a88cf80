"""Text towers, tokenizers, sentence encoders."""

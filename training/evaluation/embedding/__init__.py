"""Embeddings of a manifest's images, texts and sounds."""

"""Writes: images, texts, embeddings, deletion, garbage collection."""

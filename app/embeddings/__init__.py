"""Embeddings for other programs: routes, schemas and operations."""

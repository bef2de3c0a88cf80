"""Generations of embeddings: building, comparing, activating, dropping; the models that make them."""

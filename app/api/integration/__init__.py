"""Interfaces for other programs: embeddings in the form of OpenAI."""

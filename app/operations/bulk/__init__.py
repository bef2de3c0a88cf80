"""Many searches, and many embeddings, in one request."""

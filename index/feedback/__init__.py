"""Relevance judgements of users, and their export as training data."""

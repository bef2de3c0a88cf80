"""Heads and poolings between a tower and the embedding."""

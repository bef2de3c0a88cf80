"""Hits and further forms of searches."""

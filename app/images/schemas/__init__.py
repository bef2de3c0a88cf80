"""Schemas of writes and deletions of images."""

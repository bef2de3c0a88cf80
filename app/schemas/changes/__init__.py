"""Schemas of what changes a collection."""

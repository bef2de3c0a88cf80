"""Schemas of studies."""

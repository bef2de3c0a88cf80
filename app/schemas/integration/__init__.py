"""Schemas of interfaces for other programs."""

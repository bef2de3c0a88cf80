"""Descriptions of the interface for its readers: problems, and examples of operations."""

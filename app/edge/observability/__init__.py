"""Logging, metrics, tracebacks."""

"""Untrusted image files: their headers are checked before anything is decoded."""

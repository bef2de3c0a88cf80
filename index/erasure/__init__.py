"""Erasure: all that the home holds of an image goes, and what still has it is named."""

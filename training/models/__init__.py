"""Encoders: how an image or a sentence becomes a vector."""

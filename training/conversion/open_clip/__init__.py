"""Encoders in folders of open_clip."""

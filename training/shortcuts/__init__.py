"""Synthetic shortcuts: an id that an image and its caption share, and that says nothing of what they show."""

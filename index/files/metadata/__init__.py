"""Removal of metadata from image files: position, names, serial numbers, comments; pixels stay bit by bit."""

"""The endings of image files that can be decoded."""

from typing import Final

READABLE_SUFFIXES: Final = (
    *(".jpg", ".jpeg", ".jpe", ".jfif", ".mpo", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".avif"),
)

"""Regions of pictures: searches by a part, and maps of what matched."""

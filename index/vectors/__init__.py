"""Views of a generation's vectors that can be searched."""

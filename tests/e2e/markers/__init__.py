"""Markers in all that comes in, and the search for them in all that is kept and said."""

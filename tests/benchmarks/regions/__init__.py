"""Searches by a part of a film, on drawn films and on films with boxes that a person drew."""

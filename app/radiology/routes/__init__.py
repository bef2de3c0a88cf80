"""Studies, and the archive and viewer that they are opened in."""

"""Routes about callers: sessions of browsers."""

"""Who calls: sessions of browsers."""

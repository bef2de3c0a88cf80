"""Who may ask: hosts, origins, the admin key."""

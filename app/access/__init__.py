"""Access control: hosts, origins, the admin key."""

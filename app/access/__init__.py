"""Access control: hosts, origins, callers and their roles."""

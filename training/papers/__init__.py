"""What only a paper's table needs. It is registered from outside the core, by entry points."""

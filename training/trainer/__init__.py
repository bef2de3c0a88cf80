"""The training loop, which knows no objective, and everything that surrounds it."""

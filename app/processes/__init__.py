"""Processes that end with the one that has started them, and training in several of them."""

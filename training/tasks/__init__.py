"""Runs that end in figures and not in an encoder: their settings, their loop, and how one begins."""

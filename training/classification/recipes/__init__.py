"""Recipes of text classification."""

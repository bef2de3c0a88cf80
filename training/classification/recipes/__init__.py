"""Recipes of image classification."""

"""Typed recipes: what a training run is made of, read from YAML."""

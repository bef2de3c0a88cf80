"""Manifests, images, readers of published data sets, and generated sample data."""

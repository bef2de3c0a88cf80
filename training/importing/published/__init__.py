"""Readers of data sets in the layouts that people download, one a module."""

"""Tests of the viewer and its archive."""

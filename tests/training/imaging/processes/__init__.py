"""Tests of the decoding processes."""

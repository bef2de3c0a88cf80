"""Runs whose result is metrics, not an encoder: their problems for the loop, and the start of a run."""

"""Runs whose result is metrics, not an encoder: settings, loop and start of a run."""

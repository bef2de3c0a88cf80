"""Routes about the cases that people keep."""

"""Work on the cases that people keep."""

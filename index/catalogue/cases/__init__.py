"""Tables of the cases that people keep."""

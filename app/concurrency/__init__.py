"""Thread pools, and what requests spend in them."""

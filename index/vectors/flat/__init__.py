"""Exhaustive search by a similarity that is no inner product: k-blades, and vectors without a sign."""

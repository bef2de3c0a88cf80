"""Approximate search: an inverted file of PQ codes, its operating point, and the search that goes by both."""

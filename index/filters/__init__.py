"""Metadata filters: JSON grammar, SQL, facets, and columns in memory."""

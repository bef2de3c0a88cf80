"""Metadata filters: JSON grammar, SQL, facets, and columns kept in memory."""

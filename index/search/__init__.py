"""A search: request, query vector, ranking, grouping, cursors, hits."""

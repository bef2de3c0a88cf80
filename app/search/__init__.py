"""Search: routes, schemas, sources of query vectors, and the search itself."""

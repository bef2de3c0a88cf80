"""What can be searched: the catalogue, vectors, filters, generations, ingest and the search engine."""

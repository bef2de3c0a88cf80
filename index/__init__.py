"""The index: catalogue, vectors, filters, generations, ingest and search engine."""

"""Storage of float16 vectors: in memory, in mapped files, or with a copy on a GPU."""

"""Storage of float16 vectors: in memory, or in mapped files."""

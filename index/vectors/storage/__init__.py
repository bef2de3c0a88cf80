"""Where float16 vectors lie: in memory, in mapped files, or with a copy on a GPU."""

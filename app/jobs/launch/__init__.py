"""Training in several processes, and processes that end with their parent."""

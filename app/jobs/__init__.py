"""Background jobs, which workers run in their own processes, separate from the service."""

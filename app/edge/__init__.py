"""What every request passes: the server, HTTP, limits, logs and metrics."""

"""The HTTP server: protocol, connections, admission, and the stop."""

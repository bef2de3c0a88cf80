"""JSON schemas of requests and responses; the command line prints the same."""

"""Throughput of the service at saturation beside the bare encoder, and the time of one search at a time."""

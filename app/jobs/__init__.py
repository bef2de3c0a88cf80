"""Offline jobs: what a worker does, in processes of their own, beside the service."""

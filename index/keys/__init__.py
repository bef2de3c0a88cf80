"""API keys of the service: made, listed, rotated, revoked, checked."""

"""Text towers and sentence encoders."""

"""Audio towers and spectrograms."""

"""The life of a model: judged, taken over, described."""

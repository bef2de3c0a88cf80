"""Sample scenes: drawn places and things with known factors, captions and sounds."""

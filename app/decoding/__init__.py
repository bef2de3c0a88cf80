"""Images of callers, decoded in processes with limits of memory and time."""

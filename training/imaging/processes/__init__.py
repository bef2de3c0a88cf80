"""Processes that decode image files, with limits of memory and time, and a queue."""

"""The state of a run: folder, checkpoint, metrics, devices, processes, and how it ends."""

"""Thread pools, and the handover of their results to the event loop."""

"""What writes do: forms of images, conditions, answers that are kept, and erasure."""

"""Gradients of large batches, batch norm across parts, parameter groups and learning rates."""

"""Evaluation of a trained encoder: retrieval metrics, histograms, and published results for comparison."""

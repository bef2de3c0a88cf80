"""Towers as ONNX graphs, which ONNX Runtime computes without PyTorch."""

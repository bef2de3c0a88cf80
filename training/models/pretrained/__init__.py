"""Pretrained models: their folder, weights, architecture and preprocessing. Safetensors only, never code."""

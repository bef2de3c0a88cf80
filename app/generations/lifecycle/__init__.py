"""Life cycle of a model: comparison with the active one, promotion, and its generations."""

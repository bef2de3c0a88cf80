"""Generations and models: routes, schemas, activation, and the retraining that leads to them."""

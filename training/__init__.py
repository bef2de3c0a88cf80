"""Models, objectives, data, evaluation and the trainer: everything that decides how an image becomes a vector."""

"""Models, objectives, data, evaluation, trainer: everything that decides how an image becomes a vector."""

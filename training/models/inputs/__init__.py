"""Images and texts as the arrays that a model takes; needs neither torch nor a model."""

"""Images, sounds and texts of a training run: decoded, prepared, augmented and drawn as batches."""

"""Near-duplicate images of a collection, by perceptual hash and vector."""

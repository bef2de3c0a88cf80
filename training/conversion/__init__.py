"""Published encoders as bundles, without training."""

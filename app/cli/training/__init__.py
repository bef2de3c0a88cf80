"""Commands that train and measure."""

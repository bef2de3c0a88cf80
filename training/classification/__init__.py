"""Classification of texts and of images."""

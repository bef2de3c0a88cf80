"""Classification of images by their labels: linear evaluation and fine-tuning of an image encoder."""

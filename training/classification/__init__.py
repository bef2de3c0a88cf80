"""Classification of images by the labels of a manifest: linear evaluation and fine-tuning."""

"""Classification of texts and of images, and what both kinds of runs have in common."""

"""Lists of images that people keep under a name, with notes."""

"""Files next to the catalogue: images, bundles, and the removal of those that nothing refers to."""

"""Reports as hospitals keep them: read, freed of what identifies people, and matched to studies."""

"""Images of one's own: a folder, with or without a table that says what they show."""

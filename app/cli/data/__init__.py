"""Commands on data: import, sample data, the demo, feedback, duplicates."""

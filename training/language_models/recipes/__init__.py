"""The recipes of language models that come with the project."""

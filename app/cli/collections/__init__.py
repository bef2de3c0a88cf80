"""Commands on collections: index, search, generations, models."""

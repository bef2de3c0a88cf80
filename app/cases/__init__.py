"""Case lists and teaching files: routes, schemas, and the archives that are handed out."""

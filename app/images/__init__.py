"""Images: routes, schemas, uploads, pictures, deletion and erasure."""

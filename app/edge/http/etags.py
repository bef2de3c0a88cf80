"""ETags of images: strong, and equal where record and file are."""


def etag_of(revision: str) -> str:
    """Return the ETag of an image at a revision, as headers have it."""
    return f'"{revision}"'

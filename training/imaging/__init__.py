"""Images and sounds from bytes that nobody vouches for: the header is judged before anything is decoded."""

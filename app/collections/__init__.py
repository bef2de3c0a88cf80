"""Collections, their names and copies: routes and schemas."""

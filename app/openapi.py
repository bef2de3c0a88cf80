"""The OpenAPI description: its words, and problem documents under their own media type."""

from typing import Any

from app.problems import MEDIA_TYPE

DESCRIPTION = """
Find images by a text, by an image, or by an image that a collection holds.

Every answer names the model and the generation that gave it. A score is the cosine between query and image:
it orders hits and is not a probability. Errors are problem documents (RFC 9457) that say what to do.
"""

TAGS = [
    {"name": "search", "description": "Pages of hits."},
    {"name": "images", "description": "What a hit points to."},
    {"name": "collections", "description": "What can be searched."},
    {"name": "models", "description": "What encodes the queries."},
    {"name": "health", "description": "For whoever runs the service."},
]

_PROBLEM_REFERENCE = "#/components/schemas/Problem"
_FIRST_ERROR_STATUS = 400


def describe(schema: dict[str, Any]) -> dict[str, Any]:
    """Correct the generated description: what errors are, and nothing of the framework's own format."""
    for path in schema["paths"].values():
        for operation in path.values():
            for status, response in operation["responses"].items():
                if int(status) >= _FIRST_ERROR_STATUS:
                    response["content"] = {MEDIA_TYPE: {"schema": {"$ref": _PROBLEM_REFERENCE}}}
    for name in ("HTTPValidationError", "ValidationError"):
        schema["components"]["schemas"].pop(name, None)
    return schema

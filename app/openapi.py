"""The OpenAPI description: its words, and problem documents under their own media type."""

from http import HTTPStatus
from typing import Any

from app.edge.http.description.examples import add_example
from app.edge.http.problems import MEDIA_TYPE
from app.embeddings import EmbeddingsQuery
from app.search.schemas import SearchQuery

DESCRIPTION = """
Find images, or the texts that belong to them, by texts, by images, and by examples of what is wanted and what
is not.

Every answer names the model and the generation that gave it. A score orders hits and is not a probability;
`z_score` and `confident` say how it compares with the collection. Errors are problem documents (RFC 9457)
that say what to do.
"""

TAGS = [
    {"name": "search", "description": "Pages of hits."},
    {"name": "images", "description": "What a hit points to."},
    {"name": "studies", "description": "Studies like another one, by the UIDs of DICOM."},
    {"name": "feedback", "description": "Relevance judgements of hits, for retraining."},
    {
        "name": "cases",
        "description": "Images that people keep in lists, with notes; teaching files.",
    },
    {"name": "writes", "description": "Changes of images and of whole collections."},
    {"name": "collections", "description": "What can be searched."},
    {"name": "generations", "description": "Which embedding of a collection is searched."},
    {"name": "jobs", "description": "What workers do in their own time; for whoever runs the service."},
    {"name": "sessions", "description": "Signing in by a browser, which cannot send a key with images."},
    {"name": "audit", "description": "Who did what."},
    {"name": "models", "description": "What encodes the queries."},
    {"name": "health", "description": "For whoever runs the service."},
]

_PROBLEM_REFERENCE = "#/components/schemas/Problem"
_FIRST_ERROR_STATUS = 400
_EVENTS = "text/event-stream"
# Answers of every operation that needs a role.
_REFUSALS = (
    HTTPStatus.UNAUTHORIZED,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.SERVICE_UNAVAILABLE,
)


def describe(schema: dict[str, Any]) -> dict[str, Any]:
    """Correct the generated description: what errors are, and nothing of the framework's own format."""
    for path, operations in schema["paths"].items():
        for operation in operations.values():
            add_example(operation)
            if operation.get("security"):
                _describe_role(path, operation)
            for status, response in operation["responses"].items():
                if int(status) >= _FIRST_ERROR_STATUS:
                    response["content"] = {MEDIA_TYPE: {"schema": {"$ref": _PROBLEM_REFERENCE}}}
                elif _EVENTS in response.get("content", {}):
                    # The framework describes single events, for which OpenAPI 3.1 has no word.
                    response["content"][_EVENTS] = {"schema": {"type": "string"}}
    # Bodies that are read by hand: the framework knows nothing of their schemas.
    for model in (SearchQuery, EmbeddingsQuery):
        described = model.model_json_schema(ref_template="#/components/schemas/{model}")
        schema["components"]["schemas"] |= {**described.pop("$defs"), model.__name__: described}
    for name in ("HTTPValidationError", "ValidationError"):
        schema["components"]["schemas"].pop(name, None)
    return schema


def _describe_role(path: str, operation: dict[str, Any]) -> None:
    """Say which role an operation needs, and what it answers without that, or without what its path names."""
    roles = {role for needed in operation["security"] for names in needed.values() for role in names}
    operation["description"] = f"{operation.get('description', '')}\n\nRole: {', '.join(sorted(roles))}."
    for status in (*_REFUSALS, *((HTTPStatus.NOT_FOUND,) if "{" in path else ())):
        operation["responses"].setdefault(str(int(status)), {"description": status.phrase})

"""The OpenAPI description: words, problem documents, and examples that can be tried on `make demo`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

from app.edge.problems import MEDIA_TYPE
from app.embeddings import EmbeddingsQuery
from app.images.schemas import ImageWords, NewImage
from app.search.schemas import SearchQuery

DESCRIPTION = """
Find images, or the texts that belong to them, by texts, by images, and by positive and negative
examples.

Every answer names the model and the generation that gave it. A score orders hits and is not a probability;
`z_score` and `confident` say how it compares with the collection. Errors are problem documents (RFC 9457)
that say what to do.
"""

TAGS = [
    {"name": "search", "description": "Pages of hits."},
    {"name": "images", "description": "What a hit points to."},
    {"name": "studies", "description": "Studies like another one, by the UIDs of DICOM."},
    {"name": "feedback", "description": "Relevance judgements of hits, for retraining."},
    {"name": "cases", "description": "Images that people keep in lists, with notes; teaching files."},
    {"name": "writes", "description": "Changes of images and of whole collections."},
    {"name": "collections", "description": "What can be searched."},
    {"name": "generations", "description": "Which embedding of a collection is searched."},
    {"name": "jobs", "description": "Background jobs of the workers; for operators."},
    {
        "name": "sessions",
        "description": "Sign-in for browsers, which can't send a key when they load images.",
    },
    {"name": "audit", "description": "Who did what."},
    {"name": "models", "description": "What encodes the queries."},
    {"name": "health", "description": "For operators."},
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
    # Bodies that are read by hand: the framework doesn't know their schemas.
    for model in (SearchQuery, EmbeddingsQuery, ImageWords, NewImage):
        described = model.model_json_schema(ref_template="#/components/schemas/{model}")
        schema["components"]["schemas"] |= {**described.pop("$defs", {}), model.__name__: described}
    for name in ("HTTPValidationError", "ValidationError"):
        schema["components"]["schemas"].pop(name, None)
    return schema


def _describe_role(path: str, operation: dict[str, Any]) -> None:
    """Document the role of an operation, and its responses without the role or the resource."""
    roles = {role for needed in operation["security"] for names in needed.values() for role in names}
    operation["description"] = f"{operation.get('description', '')}\n\nRole: {', '.join(sorted(roles))}."
    for status in (*_REFUSALS, *((HTTPStatus.NOT_FOUND,) if "{" in path else ())):
        operation["responses"].setdefault(str(int(status)), {"description": status.phrase})


@dataclass(frozen=True, slots=True)
class Example:
    """A request of an operation: parameters by name, and a JSON body or the texts of a form by field."""

    parameters: Mapping[str, Any] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None


_SCENES: Final = {"collection": "scenes"}
_SCENE: Final = {**_SCENES, "image_id": "scene00012"}
_CASES: Final = {**_SCENES, "case_list": "teaching"}
_WARD: Final = {"collection": "ward"}
_DIGEST: Final = {"digest": "58f02ce1a9b47d6e3c5a1f0b8e92d4c758f02ce1a9b47d6e3c5a1f0b8e92d4c7"}
_STUDY: Final = {"study": "1.2.826.0.1.3680043.8.498.3"}
_SOP: Final = {"sop": "1.2.826.0.1.3680043.8.498.3.1.9"}
_TEXT: Final = "two dogs run through shallow water"

# In an order in which they can be tried one after the other; operations without parameters need none.
EXAMPLES: Final[Mapping[str, Example]] = {
    "get_collection": Example(_SCENES),
    "list_images": Example({**_SCENES, "limit": 5, "filter": '{"field": "split", "eq": "test"}'}),
    "count_values": Example({**_SCENES, "field": "labels"}),
    "count_facets": Example(_SCENES, {"field": "labels", "containing": "dog"}),
    "count_images": Example(_SCENES, {"filter": {"field": "split", "eq": "test"}}),
    "search_images": Example(_SCENES, {"text": _TEXT, "limit": 5}),
    "search_batch": Example(_SCENES, {"searches": [{"text": _TEXT}, {"like": [{"id": "scene00012"}]}]}),
    "create_embeddings": Example(body={"model": "scenes", "input": [_TEXT, "a boat"]}),
    "find_similar_studies": Example({**_SCENES, **_STUDY, "limit": 5}),
    "find_studies_like_image": Example({**_SCENES, **_STUDY, **_SOP, "same_patient": True}),
    "find_similar_anywhere": Example(_STUDY),
    "find_like_image_anywhere": Example({**_STUDY, **_SOP}),
    "get_image": Example(_SCENE),
    "get_thumbnail": Example(_SCENE),
    "get_rendition": Example({**_SCENE, "size": 64}),
    "get_levels": Example(_SCENE),
    "map_similarity": Example(_SCENE, {"text": _TEXT}),
    "get_content": Example(_SCENE),
    "link_image": Example(_SCENE, {"rendition": {"size": 1024}, "expires_in": 600}),
    "judge_hit": Example(_SCENES, {"query": {"text": _TEXT}, "hit": "scene00012", "relevant": True}),
    "write_results": Example({**_SCENES, **_STUDY}, {**_SOP, "hits": ["scene00012"], "forms": ["selection"]}),
    "count_judgements": Example(_SCENES),
    "put_case_list": Example(_CASES, {"name": "Dogs, teaching"}),
    "list_case_lists": Example(_SCENES),
    "save_case_image": Example({**_CASES, **_SCENE}, {"note": "Two of them, one is easily missed."}),
    "get_case_list": Example({**_CASES, "limit": 5}),
    "export_case_list": Example(_CASES),
    "remove_case_image": Example({**_CASES, **_SCENE}),
    "delete_case_list": Example(_CASES),
    "create_collection": Example(body={"name": "ward", "same_model_as": "scenes"}),
    "upload_images": Example(
        _WARD, {"records": json.dumps([{"id": "first", "texts": ["a dog in the snow"]}])}
    ),
    "store_instances_of_studies": Example(_WARD),
    "store_instances_of_study": Example({**_WARD, **_STUDY}),
    "put_image": Example({**_WARD, "image_id": "second"}, {"record": json.dumps({"report": "No finding."})}),
    "update_image": Example(
        {**_WARD, "image_id": "second"}, {"labels": ["Edema"], "report": None, "metadata": {"view": "PA"}}
    ),
    "delete_image": Example({**_WARD, "image_id": "second"}),
    "delete_matching_images": Example(
        _WARD, {"filter": {"field": "id", "eq": "second"}, "dry_run": True, "expected_count": None}
    ),
    "erase_images": Example(_WARD, {"ids": ["first"]}),
    "put_alias": Example({"alias": "current"}, {"collection": "ward"}),
    "delete_alias": Example({"alias": "current"}),
    "rename_collection": Example(_WARD, {"name": "clinic"}),
    "delete_collection": Example({"collection": "clinic"}),
    "get_model": Example(_DIGEST),
    "register_model": Example(body={"job": 1}),
    "list_generations": Example(_SCENES),
    "roll_back_collection": Example(_SCENES),
    "activate_generation": Example({**_SCENES, "number": 2}),
    "create_job": Example(body={"kind": "duplicates", "collection": "scenes"}),
    "list_jobs": Example({"kind": "duplicates", "limit": 10}),
    "index_study": Example({**_SCENES, **_STUDY}),
    "cancel_job": Example({"job": 2}),
    "get_job": Example({"job": 1}),
    "stream_job_events": Example({"job": 1}),
    "list_audit": Example({"limit": 10}),
}


def add_example(operation: dict[str, Any]) -> None:
    """Write the example of an operation into its OpenAPI description: of parameters, and of the body."""
    example = EXAMPLES.get(operation["operationId"], Example())
    for parameter in operation.get("parameters", ()):
        if parameter["name"] in example.parameters:
            parameter["example"] = example.parameters[parameter["name"]]
    if example.body is not None:
        content = operation["requestBody"]["content"]
        (content.get("application/json") or content["multipart/form-data"])["example"] = example.body

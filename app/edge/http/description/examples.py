"""Examples of all operations, which can be tried on a demo: `make demo` fills its collection `scenes`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

_JSON: Final = "application/json"
_FORM: Final = "multipart/form-data"


@dataclass(frozen=True, slots=True)
class Example:
    """A request of an operation.

    Attributes:
        parameters: Values of its parameters, by name.
        body: Its JSON body.
        form: Texts of its form, by field; files are the caller's.
    """

    parameters: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    form: Mapping[str, str] | None = None


_SCENES: Final = {"collection": "scenes"}
_SCENE: Final = {**_SCENES, "image_id": "scene00012"}
_CASES: Final = {**_SCENES, "case_list": "teaching"}
_WARD: Final = {"collection": "ward"}
_DIGEST: Final = {"digest": "58f02ce1a9b47d6e3c5a1f0b8e92d4c758f02ce1a9b47d6e3c5a1f0b8e92d4c7"}
_STUDY: Final = {"study": "1.2.826.0.1.3680043.8.498.3"}
_SOP: Final = {"sop": "1.2.826.0.1.3680043.8.498.3.1.9"}
_TEXT: Final = "two dogs run through shallow water"

# In an order in which they can be tried one after the other.
EXAMPLES: Final[Mapping[str, Example]] = {
    "get_liveness": Example(),
    "get_readiness": Example(),
    "get_metrics": Example(),
    "list_collections": Example(),
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
        _WARD, form={"records": json.dumps([{"id": "first", "texts": ["a dog in the snow"]}])}
    ),
    "store_instances_of_studies": Example(_WARD),
    "store_instances_of_study": Example({**_WARD, **_STUDY}),
    "put_image": Example(
        {**_WARD, "image_id": "second"}, form={"record": json.dumps({"report": "No finding."})}
    ),
    "update_image": Example(
        {**_WARD, "image_id": "second"}, {"labels": ["Edema"], "report": None, "metadata": {"view": "PA"}}
    ),
    "delete_image": Example({**_WARD, "image_id": "second"}),
    "delete_matching_images": Example(
        _WARD, {"filter": {"field": "id", "eq": "second"}, "dry_run": True, "expected_count": None}
    ),
    "erase_images": Example(_WARD, {"ids": ["first"]}),
    "put_alias": Example({"alias": "current"}, {"collection": "ward"}),
    "list_aliases": Example(),
    "delete_alias": Example({"alias": "current"}),
    "rename_collection": Example(_WARD, {"name": "clinic"}),
    "delete_collection": Example({"collection": "clinic"}),
    "list_models": Example(),
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
    "begin_session": Example(),
    "get_session": Example(),
    "end_session": Example(),
}


def add_example(operation: dict[str, Any]) -> None:
    """Write the example of an operation into its OpenAPI description: of parameters, and of the body."""
    example = EXAMPLES.get(operation["operationId"], Example())
    for parameter in operation.get("parameters", ()):
        if parameter["name"] in example.parameters:
            parameter["example"] = example.parameters[parameter["name"]]
    content = operation.get("requestBody", {}).get("content", {})
    if example.body is not None:
        content[_JSON]["example"] = example.body
    if example.form is not None:
        content[_FORM]["example"] = dict(example.form)

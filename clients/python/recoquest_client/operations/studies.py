"""Calls about studies of patients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from recoquest_client import answers
from recoquest_client.call import Call, compact, reading
from recoquest_client.operations.requests import COLLECTION, begin, get

# By whether a collection is named, and whether an image is.
_OPERATIONS = {
    (True, False): "find_similar_studies",
    (True, True): "find_studies_like_image",
    (False, False): "find_similar_anywhere",
    (False, True): "find_like_image_anywhere",
}


def find_similar(
    study: str,
    collection: str | None,
    sop: str | None,
    frame: int | None,
    filter: Mapping[str, Any] | None,
    same_patient: bool,
    limit: int,
) -> Call[answers.SimilarStudies]:
    """Find studies like a study or an image of it.

    Raises:
        ValueError: A frame is named without its image.
    """
    if frame is not None and sop is None:
        raise ValueError("A frame is one of an image: give its sop too.")
    names = {"collection": collection, "study": study, "sop": sop}
    path = f"{'/v1' if collection is None else COLLECTION}/studies/{{study}}"
    params = {
        "limit": limit,
        "same_patient": same_patient or None,
        "filter": None if filter is None else compact(filter),
        "frame": frame,
    }
    return get(
        _OPERATIONS[collection is not None, sop is not None],
        f"{path}/similar" if sop is None else f"{path}/instances/{{sop}}/similar",
        reading(answers.SimilarStudies),
        {name: value for name, value in names.items() if value is not None},
        params,
    )


def index_study(collection: str, study: str, note: bool) -> Call[answers.Job]:
    """Have a study of the archive indexed."""
    names = {"collection": collection, "study": study}
    call = begin("index_study", f"{COLLECTION}/studies/{{study}}/index", reading(answers.Job), names)
    return replace(call, params={"note": "true"}) if note else call


def write_results(
    collection: str,
    study: str,
    sop: str,
    hits: Sequence[str],
    frame: int | None,
    forms: Sequence[str] | None,
) -> Call[answers.WrittenResults]:
    """Write similar cases back to the archive."""
    body = {"sop": sop, "frame": frame, "hits": [*hits], "forms": None if forms is None else [*forms]}
    return begin(
        "write_results",
        f"{COLLECTION}/studies/{{study}}/results",
        reading(answers.WrittenResults),
        {"collection": collection, "study": study},
        body,
    )

"""Calls of the service's operations, for both clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar

import httpx2

from recoquest_client import answers
from recoquest_client.call import LONG_TIMEOUT, Call, compact, idempotency_key, reading
from recoquest_client.files import ImageFile, NewImage
from recoquest_client.options import Example, search_body
from recoquest_client.readers import read_batch, read_count, read_image, read_list, read_nothing

_COLLECTION = "/v1/collections/{collection}"
_IMAGE = "/v1/collections/{collection}/images/{image_id}"
_JOB = "/v1/jobs/{job}"

_T = TypeVar("_T")


def list_collections() -> Call[tuple[answers.Collection, ...]]:
    """List the collections that the caller may read."""
    read = read_list("collections", answers.Collection)
    return _get("list_collections", "/v1/collections", read)


def get_collection(collection: str) -> Call[answers.Collection]:
    """Describe a collection with the values of its fields."""
    return _get("get_collection", _COLLECTION, reading(answers.Collection), {"collection": collection})


def create_collection(name: str, model: str | None, same_model_as: str | None) -> Call[answers.Collection]:
    """Begin a collection."""
    body = _given(name=name, model=model, same_model_as=same_model_as)
    return _begin("create_collection", "/v1/collections", reading(answers.Collection), {}, body)


def delete_collection(collection: str) -> Call[None]:
    """Remove a collection."""
    names = {"collection": collection}
    return Call("delete_collection", "DELETE", _COLLECTION, read_nothing, names, timeout=LONG_TIMEOUT)


def search(
    collection: str,
    text: str | None,
    options: Mapping[str, Any],
    *,
    images: Sequence[ImageFile] = (),
    unlike_images: Sequence[ImageFile] = (),
    cursor: str | None = None,
) -> Call[answers.SearchPage]:
    """Search once; a form where image files are sent, else JSON."""
    body = search_body(text, options, cursor)
    files = [*(("image", file) for file in images), *(("unlike_image", file) for file in unlike_images)]
    return Call(
        "search_images",
        "POST",
        f"{_COLLECTION}/search",
        reading(answers.SearchPage),
        {"collection": collection},
        body=None if files else body,
        form={"query": compact(body)} if files else None,
        files=files,
        is_repeatable=True,
    )


def search_batch(
    collection: str, searches: Sequence[Mapping[str, Any]]
) -> Call[tuple[answers.BatchResult, ...]]:
    """Search many times in one request."""
    bodies = [
        search_body(one.get("text"), {name: value for name, value in one.items() if name != "text"})
        for one in searches
    ]
    names = {"collection": collection}
    path = f"{_COLLECTION}/search/batch"
    return _ask("search_batch", path, read_batch, names, {"searches": bodies})


def list_images(
    collection: str, filter: Mapping[str, Any] | None, parts: Sequence[str] | None, limit: int
) -> Call[answers.ImagePage]:
    """List a page of images."""
    params = {
        "filter": None if filter is None else compact(filter),
        "with": None if parts is None else list(parts),
        "limit": limit,
    }
    read = reading(answers.ImagePage)
    return _get("list_images", f"{_COLLECTION}/images", read, {"collection": collection}, params)


def get_image(collection: str, image_id: str) -> Call[answers.Image]:
    """Describe an image."""
    return _get("get_image", _IMAGE, read_image, _image(collection, image_id))


def get_content(collection: str, image_id: str) -> Call[bytes]:
    """Read the stored file."""
    return _file("get_content", f"{_IMAGE}/content", collection, image_id)


def get_thumbnail(collection: str, image_id: str) -> Call[bytes]:
    """Read a small picture."""
    return _file("get_thumbnail", f"{_IMAGE}/thumbnail", collection, image_id)


def get_rendition(
    collection: str, image_id: str, size: int | None, window: str, media_type: str
) -> Call[bytes]:
    """Read the image as it is searched."""
    call = _file("get_rendition", f"{_IMAGE}/rendition", collection, image_id)
    return replace(call, params={"size": size, "window": window}, headers={"Accept": media_type})


def count_images(collection: str, options: Mapping[str, Any]) -> Call[int]:
    """Count images, texts or groups."""
    body = {name: value for name, value in options.items() if value is not None}
    return _ask("count_images", f"{_COLLECTION}/count", read_count, {"collection": collection}, body)


def count_values(
    collection: str, filter: Mapping[str, Any] | None, field: str | None, containing: str | None
) -> Call[answers.Facets]:
    """Count the values of fields."""
    params = {
        "filter": None if filter is None else compact(filter),
        "field": field,
        "containing": containing,
    }
    names = {"collection": collection}
    return _get("count_values", f"{_COLLECTION}/facets", reading(answers.Facets), names, params)


def upload_images(
    collection: str, images: Sequence[NewImage], on_sent: Callable[[int], None] | None = None
) -> Call[answers.Uploaded]:
    """Put in the images of one request."""
    records = [{**image.record, "id": image.id} for image in images]
    return Call(
        "upload_images",
        "POST",
        f"{_COLLECTION}/images",
        reading(answers.Uploaded),
        {"collection": collection},
        form={"records": compact(records)},
        files=[("image", image.file) for image in images],
        headers=idempotency_key(),
        is_repeatable=True,
        on_sent=on_sent,
    )


def put_image(
    collection: str,
    image: NewImage,
    etag: str | None,
    only_new: bool,
) -> Call[answers.Written]:
    """Put in an image under its id."""
    if etag is not None and only_new:
        raise ValueError("A new image has no ETag: give either etag or only_new.")
    headers = {"If-None-Match": "*"} if only_new else _condition(etag)
    return Call(
        "put_image",
        "PUT",
        _IMAGE,
        reading(answers.Written),
        _image(collection, image.id),
        form={"record": compact(dict(image.record))},
        files=[("image", image.file)],
        headers=headers,
        # A condition holds once: sent again, its own first attempt would fail it.
        is_repeatable=not headers,
    )


def update_image(
    collection: str, image_id: str, etag: str | None, changes: Mapping[str, Any]
) -> Call[answers.Written]:
    """Change what is said of an image; None removes a report or group."""
    return Call(
        "update_image",
        "PATCH",
        _IMAGE,
        reading(answers.Written),
        _image(collection, image_id),
        body=dict(changes),
        headers=_condition(etag),
        is_repeatable=etag is None,
    )


def delete_image(collection: str, image_id: str, etag: str | None) -> Call[None]:
    """Remove an image."""
    names = _image(collection, image_id)
    return Call("delete_image", "DELETE", _IMAGE, read_nothing, names, headers=_condition(etag))


def delete_matching_images(
    collection: str, filter: Mapping[str, Any], dry_run: bool, expected_count: int | None
) -> Call[answers.Deleted]:
    """Remove the images that pass a filter."""
    body = {"filter": dict(filter), "dry_run": dry_run, "expected_count": expected_count}
    path, names = f"{_COLLECTION}/images/delete", {"collection": collection}
    return _begin("delete_matching_images", path, reading(answers.Deleted), names, body)


def erase_images(collection: str, ids: Sequence[str]) -> Call[answers.Erased]:
    """Erase images."""
    names = {"collection": collection}
    path, body = f"{_COLLECTION}/erase", {"ids": list(ids)}
    return Call("erase_images", "POST", path, reading(answers.Erased), names, body=body, timeout=LONG_TIMEOUT)


def judge_hit(
    collection: str,
    hit: str,
    relevant: bool | None,
    text: str | None,
    like: Sequence[Example],
    unlike: Sequence[Example],
    missed: bool,
) -> Call[answers.Judged]:
    """Judge a hit."""
    body = {
        "query": search_body(text, {"like": like, "unlike": unlike}),
        "hit": hit,
        "relevant": relevant,
        "missed": missed,
    }
    names = {"collection": collection}
    return _begin("judge_hit", f"{_COLLECTION}/feedback", reading(answers.Judged), names, body)


def count_judgements(collection: str) -> Call[answers.Judgements]:
    """Count judgements."""
    read = reading(answers.Judgements)
    return _get("count_judgements", f"{_COLLECTION}/feedback", read, {"collection": collection})


def list_generations(collection: str) -> Call[tuple[answers.Generation, ...]]:
    """List the generations of a collection."""
    read = read_list("generations", answers.Generation)
    return _get("list_generations", f"{_COLLECTION}/generations", read, {"collection": collection})


def activate_generation(collection: str, number: int) -> Call[answers.Generation]:
    """Search in a generation."""
    path = f"{_COLLECTION}/generations/{{number}}/activate"
    names: dict[str, str | int] = {"collection": collection, "number": number}
    return _begin("activate_generation", path, reading(answers.Generation), names)


def roll_back_collection(collection: str) -> Call[answers.Generation]:
    """Search in the generation before."""
    path = f"{_COLLECTION}/rollback"
    names = {"collection": collection}
    return _begin("roll_back_collection", path, reading(answers.Generation), names)


def list_models() -> Call[tuple[answers.Model, ...]]:
    """List registered models."""
    return _get("list_models", "/v1/models", read_list("models", answers.Model))


def get_model(digest: str) -> Call[answers.Model]:
    """Describe a model."""
    return _get("get_model", "/v1/models/{digest}", reading(answers.Model), {"digest": digest})


def register_model(job: int) -> Call[answers.Model]:
    """Register the model of a job."""
    return _begin("register_model", "/v1/models", reading(answers.Model), {}, {"job": job})


def create_job(kind: str, arguments: Mapping[str, Any]) -> Call[answers.Job]:
    """Give a job to the workers."""
    return _begin("create_job", "/v1/jobs", reading(answers.Job), {}, {"kind": kind, **arguments})


def list_jobs(state: str | None, kind: str | None, limit: int) -> Call[answers.JobPage]:
    """List a page of jobs."""
    params = {"state": state, "kind": kind, "limit": limit}
    return _get("list_jobs", "/v1/jobs", reading(answers.JobPage), params=params)


def get_job(job: int) -> Call[answers.Job]:
    """Describe a job."""
    return _get("get_job", _JOB, reading(answers.Job), {"job": job})


def cancel_job(job: int) -> Call[answers.Job]:
    """Cancel a job."""
    return _begin("cancel_job", f"{_JOB}/cancel", reading(answers.Job), {"job": job})


def stream_job_events(job: int) -> Call[answers.Job]:
    """Follow a job."""
    call = _get("stream_job_events", f"{_JOB}/events", reading(answers.Job), {"job": job})
    return replace(call, headers={"Accept": "text/event-stream"})


def list_audit(
    since: datetime | str | None,
    until: datetime | str | None,
    collection: str | None,
    action: str | None,
    limit: int,
) -> Call[answers.AuditPage]:
    """List a page of the audit trail."""
    params = {
        "since": since.isoformat() if isinstance(since, datetime) else since,
        "until": until.isoformat() if isinstance(until, datetime) else until,
        "collection": collection,
        "action": action,
        "limit": limit,
    }
    return _get("list_audit", "/v1/audit", reading(answers.AuditPage), params=params)


def behind(call: Call[_T], cursor: str) -> Call[_T]:
    """Return the call of a list for the page behind."""
    return replace(call, params={**call.params, "cursor": cursor})


def _get(
    operation: str,
    path: str,
    read: Callable[[httpx2.Response], _T],
    names: Mapping[str, str | int] | None = None,
    params: Mapping[str, Any] | None = None,
) -> Call[_T]:
    return Call(operation, "GET", path, read, names or {}, params=params or {}, is_repeatable=True)


def _ask(
    operation: str,
    path: str,
    read: Callable[[httpx2.Response], _T],
    names: Mapping[str, str | int],
    body: Any,
) -> Call[_T]:
    """Return a POST that changes nothing."""
    return Call(operation, "POST", path, read, names, body=body, is_repeatable=True)


def _begin(
    operation: str,
    path: str,
    read: Callable[[httpx2.Response], _T],
    names: Mapping[str, str | int],
    body: Any = None,
) -> Call[_T]:
    """Return a POST that changes something, with a key."""
    return Call(
        operation,
        "POST",
        path,
        read,
        names,
        body=body,
        headers=idempotency_key(),
        is_repeatable=True,
        timeout=LONG_TIMEOUT,
    )


def _file(operation: str, path: str, collection: str, image_id: str) -> Call[bytes]:
    call = _get(operation, path, lambda response: response.content, _image(collection, image_id))
    return replace(call, headers={"Accept": "*/*"})


def _image(collection: str, image_id: str) -> dict[str, str | int]:
    return {"collection": collection, "image_id": image_id}


def _condition(etag: str | None) -> dict[str, str]:
    return {} if etag is None else {"If-Match": etag}


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}

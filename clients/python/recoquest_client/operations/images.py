"""Calls of images."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from recoquest_client import answers
from recoquest_client.call import LONG_TIMEOUT, Call, compact, idempotency_key, reading
from recoquest_client.files import NewImage
from recoquest_client.operations.requests import COLLECTION, ask, begin, condition, get, given, precondition
from recoquest_client.options import LinkedPicture, search_body
from recoquest_client.readers import read_image, read_nothing

_IMAGE = "/v1/collections/{collection}/images/{image_id}"


def list_images(collection: str, options: Mapping[str, Any], limit: int) -> Call[answers.ImagePage]:
    """List a page of images."""
    params = {**search_body(None, options), "limit": limit}
    if "filter" in params:
        params["filter"] = compact(params["filter"])
    read = reading(answers.ImagePage)
    return get("list_images", f"{COLLECTION}/images", read, {"collection": collection}, params)


def get_image(collection: str, image_id: str) -> Call[answers.Image]:
    """Describe an image."""
    return get("get_image", _IMAGE, read_image, _image(collection, image_id))


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


def link_image(
    collection: str, image_id: str, rendition: LinkedPicture | None, expires_in: int
) -> Call[answers.PictureLink]:
    """Make a link that shows a picture without a key."""
    names, read = _image(collection, image_id), reading(answers.PictureLink)
    body = given(rendition=rendition, expires_in=expires_in)
    return ask("link_image", f"{_IMAGE}/link", read, names, body)


def upload_images(
    collection: str, images: Sequence[NewImage], on_sent: Callable[[int], None] | None = None
) -> Call[answers.Uploaded]:
    """Put in the images of one request."""
    records = [{**image.record, "id": image.id} for image in images]
    return Call(
        "upload_images",
        "POST",
        f"{COLLECTION}/images",
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
    headers = precondition("image", etag, only_new)
    return Call(
        "put_image",
        "PUT",
        _IMAGE,
        reading(answers.Written),
        _image(collection, image.id),
        form={"record": compact(dict(image.record))},
        files=[("image", image.file)],
        headers=headers,
        is_repeatable=not headers,
    )


def update_image(
    collection: str, image_id: str, etag: str | None, changes: Mapping[str, Any]
) -> Call[answers.Written]:
    """Change the record of an image; None removes a report or group."""
    return Call(
        "update_image",
        "PATCH",
        _IMAGE,
        reading(answers.Written),
        _image(collection, image_id),
        body=dict(changes),
        headers=condition(etag),
        is_repeatable=etag is None,
    )


def delete_image(collection: str, image_id: str, etag: str | None) -> Call[None]:
    """Remove an image."""
    names = _image(collection, image_id)
    return Call("delete_image", "DELETE", _IMAGE, read_nothing, names, headers=condition(etag))


def delete_matching_images(
    collection: str, filter: Mapping[str, Any], dry_run: bool, expected_count: int | None
) -> Call[answers.Deleted]:
    """Remove the images that pass a filter."""
    body = {"filter": dict(filter), "dry_run": dry_run, "expected_count": expected_count}
    path, names = f"{COLLECTION}/images/delete", {"collection": collection}
    return begin("delete_matching_images", path, reading(answers.Deleted), names, body)


def erase_images(
    collection: str, ids: Sequence[str] = (), patient: str | None = None, study: str | None = None
) -> Call[answers.Erased]:
    """Erase images."""
    names = {"collection": collection}
    path, body = f"{COLLECTION}/erase", {"ids": list(ids), **given(patient=patient, study=study)}
    return Call(
        "erase_images",
        "POST",
        path,
        reading(answers.Erased),
        names,
        body=body,
        headers=idempotency_key(),
        timeout=LONG_TIMEOUT,
    )


def _file(operation: str, path: str, collection: str, image_id: str) -> Call[bytes]:
    call = get(operation, path, lambda response: response.content, _image(collection, image_id))
    return replace(call, headers={"Accept": "*/*"})


def _image(collection: str, image_id: str) -> dict[str, str | int]:
    return {"collection": collection, "image_id": image_id}

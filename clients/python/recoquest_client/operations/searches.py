"""Calls of searches, counts and judgements."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from recoquest_client import answers
from recoquest_client.call import Call, compact, reading
from recoquest_client.files import ImageFile, content_of
from recoquest_client.operations.requests import COLLECTION, ask, begin, get, given
from recoquest_client.options import Example, search_body
from recoquest_client.readers import read_batch, read_count

_T = TypeVar("_T")


def search(
    collection: str,
    text: str | None,
    options: Mapping[str, Any],
    *,
    images: Sequence[ImageFile] = (),
    unlike_images: Sequence[ImageFile] = (),
    cursor: str | bool | None = None,
) -> Call[answers.SearchPage]:
    """Search once; a form where image files are sent, else JSON."""
    read, names = reading(answers.SearchPage), {"collection": collection}
    call = Call("search_images", "POST", f"{COLLECTION}/search", read, names, is_repeatable=True)
    return _searching(call, search_body(text, options, cursor), images, unlike_images)


def map_similarity(
    collection: str,
    image_id: str,
    text: str | None,
    options: Mapping[str, Any],
    *,
    images: Sequence[ImageFile] = (),
    unlike_images: Sequence[ImageFile] = (),
) -> Call[answers.SimilarityMap]:
    """Tell which parts of an image fit a search."""
    read, names = reading(answers.SimilarityMap), {"collection": collection, "image_id": image_id}
    path = f"{COLLECTION}/images/{{image_id}}/similarity-map"
    call = Call("map_similarity", "POST", path, read, names, is_repeatable=True)
    return _searching(call, search_body(text, options), images, unlike_images)


def _searching(
    call: Call[_T],
    body: dict[str, Any],
    images: Sequence[ImageFile],
    unlike_images: Sequence[ImageFile],
) -> Call[_T]:
    """Return a call with a search: as a form where image files are sent, else as JSON."""
    files = [*(("image", file) for file in images), *(("unlike_image", file) for file in unlike_images)]
    if not files:
        return replace(call, body=body)
    return replace(call, form={"query": compact(body)}, files=files)


def search_batch(
    collection: str, searches: Sequence[Mapping[str, Any]]
) -> Call[tuple[answers.BatchResult, ...]]:
    """Search many times in one request."""
    bodies = [
        search_body(one.get("text"), {name: value for name, value in one.items() if name != "text"})
        for one in searches
    ]
    names = {"collection": collection}
    path = f"{COLLECTION}/search/batch"
    return ask("search_batch", path, read_batch, names, {"searches": bodies})


def count_images(collection: str, options: Mapping[str, Any]) -> Call[int]:
    """Count images, texts or groups."""
    body = {name: value for name, value in options.items() if value is not None}
    return ask("count_images", f"{COLLECTION}/count", read_count, {"collection": collection}, body)


def count_facets(
    collection: str,
    filter: Mapping[str, Any] | None,
    field: str | None,
    containing: str | None,
    options: Mapping[str, str | None],
) -> Call[answers.Facets]:
    """Count the values of fields; in a body, which no log keeps as it does addresses."""
    body = given(filter=filter, field=field, containing=containing, **options)
    names = {"collection": collection}
    return ask("count_facets", f"{COLLECTION}/facets", reading(answers.Facets), names, body)


def create_embeddings(
    model: str, texts: Sequence[str], images: Sequence[ImageFile]
) -> Call[answers.Embeddings]:
    """Embed texts and images."""
    inputs: list[dict[str, str]] = [{"text": text} for text in texts]
    inputs += [{"image": base64.b64encode(content_of(file)).decode()} for file in images]
    read, body = reading(answers.Embeddings), {"model": model, "input": inputs}
    return ask("create_embeddings", "/v1/embeddings", read, {}, body)


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
    return begin("judge_hit", f"{COLLECTION}/feedback", reading(answers.Judged), names, body)


def count_judgements(collection: str) -> Call[answers.Judgements]:
    """Count judgements."""
    read = reading(answers.Judgements)
    return get("count_judgements", f"{COLLECTION}/feedback", read, {"collection": collection})

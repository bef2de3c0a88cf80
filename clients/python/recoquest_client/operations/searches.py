"""Calls of searches, counts and judgements."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from recoquest_client import answers
from recoquest_client.call import Call, compact, reading
from recoquest_client.files import ImageFile, content_of
from recoquest_client.operations.requests import COLLECTION, ask, begin, get, given
from recoquest_client.options import Example, search_body
from recoquest_client.readers import read_batch, read_count


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
        f"{COLLECTION}/search",
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
    path = f"{COLLECTION}/search/batch"
    return ask("search_batch", path, read_batch, names, {"searches": bodies})


def count_images(collection: str, options: Mapping[str, Any]) -> Call[int]:
    """Count images, texts or groups."""
    body = {name: value for name, value in options.items() if value is not None}
    return ask("count_images", f"{COLLECTION}/count", read_count, {"collection": collection}, body)


def count_facets(
    collection: str, filter: Mapping[str, Any] | None, field: str | None, containing: str | None
) -> Call[answers.Facets]:
    """Count the values of fields; in a body, which no log keeps as it does addresses."""
    body = given(filter=filter, field=field, containing=containing)
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

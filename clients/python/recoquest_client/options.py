"""Keywords of searches and changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

# The id of an image of the collection, or {"id": ...}, {"text": ...} or {"vector": [...]}; an id with
# {"box": {"x": ..., "y": ..., "width": ..., "height": ...}} is a part of it, in fractions of its sides.
Example = str | Mapping[str, Any]
State = Literal["present", "absent", "uncertain"]
Sort = Literal["added", "newest"]
Part = Literal["texts", "findings", "labels", "metadata", "report", "vector"]


class Box(TypedDict):
    """A part of a picture, in fractions of its width and height, as it stands upright."""

    x: float
    y: float
    width: float
    height: float


class Rendition(TypedDict, total=False):
    """An image as it is searched: its longest side in pixels, and a window such as "40,400"."""

    size: int
    window: str


LinkedPicture = Rendition | Literal["thumbnail", "content"]


class SearchOptions(TypedDict, total=False):
    """Parts of a search; docs/guides/search.md explains them."""

    like: Sequence[Example]
    unlike: Sequence[Example]
    image_boxes: Sequence[Box | None]
    unlike_image_boxes: Sequence[Box | None]
    keywords: str
    keywords_state: State
    target: Literal["images", "texts"]
    filter: Mapping[str, Any] | None
    group_by: str
    exclude_same_group: bool | str | None
    min_score: float
    diversity: float
    sort: Sort | None
    limit: int
    with_: Sequence[Part]


class Search(SearchOptions, total=False):
    """A search of a batch."""

    text: str
    cursor: str | bool


class CountOptions(TypedDict, total=False):
    """Keywords of a count."""

    filter: Mapping[str, Any] | None
    keywords: str
    keywords_state: State
    target: Literal["images", "texts"]
    group_by: str


class ListOptions(TypedDict, total=False):
    """Keywords of a list of images."""

    filter: Mapping[str, Any] | None
    sort: Sort | None
    with_: Sequence[Part] | None


class Record(TypedDict, total=False):
    """Keywords of an image."""

    texts: Sequence[str]
    report: str | None
    labels: Sequence[str]
    group: str | None
    split: Literal["train", "val", "test"]
    metadata: Mapping[str, Any]


def search_body(
    text: str | None, options: Mapping[str, Any], cursor: str | bool | None = None
) -> dict[str, Any]:
    """Return a search as the service takes it."""
    body = {name: value for name, value in options.items() if value is not None}
    for name in ("like", "unlike"):
        if name in body:
            given = [body[name]] if isinstance(body[name], str) else body[name]
            body[name] = [{"id": one} if isinstance(one, str) else dict(one) for one in given]
    if "with_" in body:
        body["with"] = list(body.pop("with_"))
    if text is not None:
        body["text"] = text
    if cursor is not None:
        body["cursor"] = cursor
    return body

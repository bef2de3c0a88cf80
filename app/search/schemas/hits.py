"""Hits and listed images as answers hold them, with the parts that were asked for."""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal, get_args
from urllib.parse import quote

from pydantic import Field
from typing_extensions import TypedDict

from app.generations.schemas import CosineKind
from app.search.schemas.findings import StatedByImage, stated_from
from index.search.results import (
    FoundImage,
    Hit,
    HitDetails,
    HitPart,
)

MetadataValue = str | int | float | bool | None | list[str | int | float | bool]

HIT_PARTS: Final[tuple[HitPart, ...]] = get_args(HitPart)
DEFAULT_PARTS: Final[tuple[HitPart, ...]] = ("texts", "findings", "labels", "metadata")


class HitLinks(TypedDict):
    """Paths of a hit's resources on this server."""

    image: Annotated[
        str, Field(description="Metadata and texts; with `/rendition` a picture, with `/content` the file.")
    ]
    thumbnail: str


class SearchHitText(TypedDict):
    """A found text."""

    position: Annotated[int, Field(ge=0, description="Position among the image's texts, from 0.")]
    text: str


class SearchHitMatch(TypedDict):
    """A text, or a sentence of the report, with words that were asked for."""

    text: str
    spans: Annotated[
        list[tuple[int, int]],
        Field(description="Start and end of each word, in characters (Unicode code points) of the text."),
    ]


class HitParts(TypedDict, total=False):
    """Parts of an image's record that a hit holds where the request names them."""

    texts: Annotated[list[str], Field(description="All texts of the image.")]
    findings: StatedByImage
    labels: list[str]
    metadata: dict[str, MetadataValue]
    report: Annotated[str | None, Field(description="The image's whole report.")]
    vector: Annotated[
        list[float] | None,
        Field(description="The vector that was compared, of length one; null where it went meanwhile."),
    ]


# Dictionaries: of hundreds of hits, checking what is of our own making would cost more than finding them.
class _Found(TypedDict):
    id: Annotated[str, Field(description="The image's id. Several found texts may belong to one image.")]
    rank: Annotated[int, Field(ge=1, description="Position over all pages, from 1.")]
    score: Annotated[
        float | None,
        Field(description="Value that orders the hits; not a probability. null without a query."),
    ]
    score_kind: Annotated[
        CosineKind | Literal["fused"] | None,
        Field(
            description="The kind of cosine; or fused: the sum over the lists, by likeness, by words and by "
            "findings, of 1 / (60 + rank) for each that has the hit among its first 1,000. null without a "
            "query."
        ),
    ]
    cosine: Annotated[
        float | None,
        Field(
            description="Similarity of query and hit, from -1 to 1; not a probability. null without a query."
        ),
    ]
    cosine_kind: Annotated[
        CosineKind | None,
        Field(
            description="Cosine of two vectors; blade_cosine: of the subspaces that two k-blades span; "
            "absolute_cosine: its absolute value, of vectors whose sign means nothing. null in a list of a "
            "collection without an active generation."
        ),
    ]
    z_score: Annotated[
        float | None,
        Field(
            description="By how many standard deviations the cosine lies above the mean of the query's "
            "cosines with a sample of the collection: near 0 is as alike as anything else. Not a probability."
        ),
    ]
    found_by: Annotated[
        list[Literal["vector", "keywords", "findings"]],
        Field(
            description="The lists that the hit comes from: of likeness, of keywords, of what says of "
            "findings what the query says; none where none was asked for."
        ),
    ]
    text: Annotated[
        SearchHitText | None, Field(description="The found text; null where images are searched.")
    ]
    matched: Annotated[
        SearchHitMatch | None,
        Field(description="The text with most of the words that were asked for; null without any of them."),
    ]
    group: Annotated[str | None, Field(description="The image's group, such as a patient or a study.")]
    group_size: Annotated[
        int | None,
        Field(
            description="With groups, how many of the hit's there are with it, counting what passes the "
            "filter and is not left out, whatever its similarity. null otherwise."
        ),
    ]


class SearchHit(_Found, HitParts):
    """One found image; or one found text, with the image that it belongs to."""

    links: HitLinks


class _Listed(TypedDict):
    id: str
    group: Annotated[str | None, Field(description="The image's group, such as a patient or a study.")]


class ListedImage(_Listed, HitParts):
    """One image of a list."""

    links: HitLinks


def hit_from(
    hit: Hit,
    z_score: float | None,
    kind: CosineKind | None,
    images: str,
    *,
    fused: bool,
    parts: Sequence[HitPart] = DEFAULT_PARTS,
    details: HitDetails | None = None,
) -> SearchHit:
    """Describe a hit.

    Args:
        hit: The hit.
        z_score: Z-score of its cosine.
        kind: Kind of its cosine; None where nothing was compared.
        images: Path of the collection's images.
        fused: Whether its score is a fused sum.
        parts: What is told of its image.
        details: What is told and not held with the hit; None where nothing is.
    """
    image, path = hit.image, f"{images}/{quote(hit.id, safe='')}"
    is_scored = not math.isnan(hit.score)
    return {
        "id": image.id,
        "rank": hit.rank,
        "score": hit.score if is_scored else None,
        "score_kind": ("fused" if fused else kind) if is_scored else None,
        "cosine": hit.cosine if is_scored else None,
        "cosine_kind": kind,
        "z_score": z_score,
        "found_by": list(hit.found_by),
        "text": None if image.text is None else {"position": image.text.position, "text": image.text.text},
        "matched": None if hit.matched is None else {"text": hit.matched.text, "spans": [*hit.matched.spans]},
        "group": image.group,
        "group_size": None if hit.others is None else hit.others + 1,
        **_parts_of(image, parts, details),
        "links": {"image": path, "thumbnail": f"{path}/thumbnail"},
    }


def listed_from(
    image: FoundImage,
    images: str,
    parts: Sequence[HitPart] = DEFAULT_PARTS,
    details: HitDetails | None = None,
) -> ListedImage:
    """Describe an image of a list; see `hit_from`."""
    path = f"{images}/{quote(image.id, safe='')}"
    return {
        "id": image.id,
        "group": image.group,
        **_parts_of(image, parts, details),
        "links": {"image": path, "thumbnail": f"{path}/thumbnail"},
    }


def _parts_of(image: FoundImage, parts: Sequence[HitPart], details: HitDetails | None) -> HitParts:
    known = HitParts()
    details = details or HitDetails()
    if "texts" in parts:
        known["texts"] = list(image.texts)
    if "labels" in parts:
        known["labels"] = list(image.labels)
    if "metadata" in parts:
        known["metadata"] = plain(image.metadata)
    if "report" in parts:
        known["report"] = details.report
    if "findings" in parts:
        known["findings"] = stated_from(image.findings)
    if "vector" in parts:
        known["vector"] = None if details.vector is None else details.vector.tolist()
    return known


def plain(metadata: Mapping[str, Any]) -> dict[str, MetadataValue]:
    """Return metadata as JSON has it: lists for tuples."""
    return {key: list(v) if isinstance(v, tuple) else v for key, v in metadata.items()}

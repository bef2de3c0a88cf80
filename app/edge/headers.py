"""Headers of requests (RFC 9110): the media types of Accept, and the conditions of a write."""

import re
from collections.abc import Sequence
from typing import Annotated, Final

from fastapi import Header, Request

from app.edge.problems import invalid
from index.writes.live import Condition

_QUALITY: Final = re.compile(r"0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?")
_MOST_RANGES: Final = 100


def preferred(accept: str, offered: Sequence[str]) -> str | None:
    """Choose a media type; None: none of them is acceptable.

    Args:
        accept: Value of the header; where it is empty, everything is acceptable.
        offered: Media types without parameters; of those that a caller likes alike the first is chosen.
    """
    ranges = dict(_parsed(part) for part in (accept.strip() or "*/*").split(",")[:_MOST_RANGES])
    best, chosen = 0.0, None
    for media_type in offered:
        # The most specific range that covers it counts.
        covering = (media_type, f"{media_type.partition('/')[0]}/*", "*/*")
        quality = next((ranges[one] for one in covering if one in ranges), 0.0)
        if quality > best:
            best, chosen = quality, media_type
    return chosen


def _parsed(part: str) -> tuple[str, float]:
    """Return a media range and its quality; what cannot be read is not acceptable."""
    media_range, *parameters = (item.strip() for item in part.split(";"))
    quality = 1.0
    for parameter in parameters:
        name, _, value = (item.strip() for item in parameter.partition("="))
        if name.lower() == "q":
            quality = float(value) if _QUALITY.fullmatch(value) else 0.0
            break
    return media_range.lower(), quality


_TAG: Final = re.compile(r'(W/)?"([\x21\x23-\x7e\x80-\xff]*)"')
_MAX_TAGS: Final = 100

_IfMatch = Annotated[
    str | None,
    Header(
        alias="If-Match",
        description="ETag that it must have, or * for any: else 412, and nothing is written.",
    ),
]
_IfNoneMatch = Annotated[
    str | None,
    Header(
        alias="If-None-Match",
        description="ETag that it must not have; * where there must be none of this name.",
    ),
]


async def write_condition(
    request: Request, if_match: _IfMatch = None, if_none_match: _IfNoneMatch = None
) -> Condition:
    """Read the condition of a write from its headers.

    Raises:
        RequestError: A header is neither * nor a list of ETags.
    """
    # The framework hands over one line of a header that came in several.
    matches = None if if_match is None else _tags(request, "If-Match", weak=False)
    differs = None if if_none_match is None else _tags(request, "If-None-Match", weak=True)
    return Condition(matches, differs)


def _tags(request: Request, name: str, *, weak: bool) -> frozenset[str]:
    """Return what the ETags of a header name; nothing for *. Weak ones keep their mark unless they count."""
    parts = [part.strip() for line in request.headers.getlist(name) for part in line.split(",")]
    if parts == ["*"]:
        return frozenset()
    tags = [_TAG.fullmatch(part) for part in parts]
    tags_found = [tag for tag in tags if tag is not None]
    if len(tags_found) < len(parts) or len(parts) > _MAX_TAGS:
        raise invalid(
            name,
            f"{name} must be *, or at most {_MAX_TAGS} ETags as answers gave them, with their double quotes: "
            f'{name}: "...".',
        )
    return frozenset(f"{'' if weak else tag[1] or ''}{tag[2]}" for tag in tags_found)

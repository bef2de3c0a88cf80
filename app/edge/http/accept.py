"""The Accept header: which of the media types on offer a caller likes best (RFC 9110, section 12.5.1)."""

import re
from collections.abc import Sequence
from typing import Final

_QUALITY: Final = re.compile(r"0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?")
_MOST_RANGES: Final = 100


def preferred(accept: str, offered: Sequence[str]) -> str | None:
    """Choose a media type; None: none of them is acceptable.

    Args:
        accept: Value of the header; where it is empty, everything is acceptable.
        offered: Media types without parameters; of those that a caller likes alike the first is chosen.
    """
    if not accept.strip():
        return offered[0] if offered else None
    ranges = dict(_parsed(part) for part in accept.split(",")[:_MOST_RANGES])
    qualities = {media_type: _quality(ranges, media_type) for media_type in offered}
    best = max(qualities.values(), default=0.0)
    return next((name for name, quality in qualities.items() if quality == best), None) if best else None


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


def _quality(ranges: dict[str, float], media_type: str) -> float:
    """Return the quality of the most specific range that covers a media type."""
    for media_range in (media_type, f"{media_type.partition('/')[0]}/*", "*/*"):
        if media_range in ranges:
            return ranges[media_range]
    return 0.0

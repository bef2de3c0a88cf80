"""Conditions of a write: If-Match and If-None-Match (RFC 9110, section 13.1)."""

import re
from typing import Annotated, Final

from fastapi import Header, Request

from app.edge.http.field_errors import FieldError
from app.edge.http.problem_kinds import INVALID
from app.edge.http.problems import RequestError
from index.writes.live import Condition

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
    found = [tag for tag in tags if tag is not None]
    if len(found) < len(parts) or len(parts) > _MAX_TAGS:
        raise _malformed(name)
    return frozenset(f"{'' if weak else tag[1] or ''}{tag[2]}" for tag in found)


def _malformed(name: str) -> RequestError:
    message = (
        f"{name} must be *, or at most {_MAX_TAGS} ETags as answers gave them, with their double quotes: "
        f'{name}: "..."'
    )
    return RequestError(INVALID, f"{message}.", errors=[FieldError(field=name, message=f"{message}.")])

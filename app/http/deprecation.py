"""Addresses and names of fields that go with the next version: they are answered, and say so (RFC 9745)."""

from typing import Any, Final, Literal

from starlette.requests import Request

# 27 November 2026, in seconds since 1970.
_SINCE: Final = "@1795737600"
_TEXT: Final = {"schema": {"type": "string"}}
REPLACED: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "headers": {
            "Deprecation": {"description": "The address goes with the next version.", **_TEXT},
            "Link": {"description": "The address that takes its place: successor-version.", **_TEXT},
        }
    }
}


def deprecation_headers(
    request: Request, path: str, relation: Literal["successor-version", "deprecation"]
) -> dict[str, str]:
    """Return the headers of an answer to a deprecated request.

    Args:
        request: The request.
        path: Path on the service of the address that takes its place, or of the notes on the change.
        relation: Which of the two the path is.
    """
    link = f"{request.scope.get('root_path', '')}{path}"
    return {"Deprecation": _SINCE, "Link": f'<{link}>; rel="{relation}"'}

"""Addresses that go with the next version: they answer, and name what takes their place (RFC 9745)."""

from typing import Any, Final

from starlette.responses import Response

# Time of the decision, in seconds since 1970.
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


def name_successor(response: Response, path: str) -> None:
    """Say in an answer that its address is deprecated.

    Args:
        response: The answer.
        path: The address that takes its place.
    """
    response.headers["Deprecation"] = _SINCE
    response.headers["Link"] = f'<{path}>; rel="successor-version"'

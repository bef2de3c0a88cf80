"""Addresses of servers, to be shown without the passwords in them."""

import re
from urllib.parse import unquote

_PARAMETER = re.compile(r"(?<=[?&])(?P<name>[^=&?]*)=[^&]*")


def without_password(url: str) -> str:
    """A database's or Redis's URL to be shown; both take passwords before the host and as parameters."""
    scheme, separator, rest = url.partition("://")
    credentials, at, address = rest.rpartition("@")
    # What begins with a slash is a path, which may have an @ as well.
    if at and not rest.startswith("/"):
        rest = f"{credentials.partition(':')[0]}:***@{address}"
    return scheme + separator + _PARAMETER.sub(_hidden, rest)


def _hidden(parameter: re.Match[str]) -> str:
    name = parameter["name"]
    return f"{name}=***" if "pass" in unquote(name).lower() else parameter[0]

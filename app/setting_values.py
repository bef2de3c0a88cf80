"""Values of settings: what they may be, and how they are written."""

import json
import os
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from ipaddress import ip_address
from string import Formatter
from typing import Any, Final
from urllib.parse import urlsplit

from cronsim import CronSim, CronSimError
from sqlalchemy import make_url

_CRON_FIELDS: Final = ("minute", "hour", "day", "month", "weekday")
# A name or an address, without a port; with a first dot, or `*.`, all names below it.
_HOST: Final = re.compile(r"(\*?\.)?[A-Za-z0-9_-][A-Za-z0-9._-]*|\[?[0-9A-Fa-f:.]+\]?")
# As browsers send it: lower case, no path. A wildcard would let every page of the web call the service.
_ORIGIN: Final = re.compile(r"https?://[a-z0-9._\[\]:-]+")

# UIDs in the address of a viewer.
_PLACES: Final = frozenset({"study", "series", "sop"})
_PUBLIC_URL: Final = re.compile(r"https?://[a-z0-9._\[\]:-]+(/[a-z0-9._~/-]*)?")


def is_safe_url(url: str) -> bool:
    """Whether nobody between can change what an address answers: HTTPS, or HTTP on this machine."""
    try:
        parts = urlsplit(url)
        name = parts.hostname or ""
        local = name == "localhost" or (parts.scheme == "http" and ip_address(name).is_loopback)
    except ValueError:
        return False
    is_plain = parts.username is None and not parts.query and not parts.fragment
    return bool(name) and is_plain and (parts.scheme == "https" or (parts.scheme == "http" and local))


def checked_hosts(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return host names.

    Raises:
        ValueError: One of them is none.
    """
    for name in names:
        if name != "*" and not _HOST.fullmatch(name):
            raise ValueError(f"{name!r} is not a name without a port, such as images.example.org")
    return names


def checked_ancestors(origins: tuple[str, ...]) -> tuple[str, ...]:
    """Return sources of a content security policy, wildcards among them.

    Raises:
        ValueError: One of them would end its directive.
    """
    for origin in origins:
        if any(character in origin for character in ";,'\" \r\n"):
            raise ValueError(f"{origin!r} is not an origin such as https://viewer.example.org")
    return origins


def checked_origins(origins: tuple[str, ...]) -> tuple[str, ...]:
    """Return origins without wildcards.

    Raises:
        ValueError: One of them is none.
    """
    for origin in origins:
        if not _ORIGIN.fullmatch(origin):
            raise ValueError(f"{origin!r} is not an origin such as https://viewer.example.org")
    return origins


def checked_public_url(url: str) -> str:
    """Return the address of the service in browsers, without a final slash.

    Raises:
        ValueError: It is none, or has more than an origin and a path.
    """
    found = url.rstrip("/")
    origin, path = _PUBLIC_URL.fullmatch(found.lower()), found.partition("://")[2].partition("/")[2]
    if origin is None or any(not part or part in (".", "..") for part in path.split("/") if path):
        raise ValueError(f"{url!r} is not an address such as https://images.example.org")
    return found


def checked_template(template: str) -> str:
    """Return the template of a viewer's address.

    Raises:
        ValueError: It has no place for the study, or one for something else.
    """
    try:
        parts = list(Formatter().parse(template))
    except ValueError as error:
        raise ValueError(f"{template!r} is not an address with places in braces: {error}") from None
    places = [name for _, name, _, _ in parts if name is not None]
    plain = all(not spec and conversion is None for _, _, spec, conversion in parts)
    if not plain or "study" not in places or not set(places) <= _PLACES:
        raise ValueError(
            f"{template!r} needs {{study}}, and may have {{series}} and {{sop}}, such as "
            "/reading#study={study}&image={sop}"
        )
    if not template.startswith(("/", "https://", "http://")) or template.startswith("//"):
        raise ValueError(
            f"{template!r} is no path of the service, and does not begin with https:// or http://"
        )
    return template


def checked_times(times: str) -> str:
    """Return times as in a crontab.

    Raises:
        ValueError: They cannot be read.
    """
    if len(times.split()) != len(_CRON_FIELDS):
        raise ValueError(f"give {len(_CRON_FIELDS)} parts: {', '.join(_CRON_FIELDS)}")
    try:
        CronSim(times, datetime.now(UTC))
    except CronSimError as error:
        raise ValueError(f"{error}: give times as in a crontab, such as 0 3 * * 0") from None
    return times


def as_text(value: object) -> str:
    """A setting as a variable from which the same setting is read."""
    if isinstance(value, dict):
        return json.dumps(value)
    return ",".join(value) if isinstance(value, list | tuple) else str(value)


def absolute_url(url: str) -> str:
    """Return the URL of a catalogue, in which the path of an SQLite file does not depend on the folder."""
    parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite" or not parsed.database:
        return url
    database = os.path.abspath(parsed.database)  # noqa: PTH100
    return parsed.set(database=database).render_as_string(hide_password=False)


def explain_errors(prefix: str, errors: Iterable[Mapping[str, Any]]) -> str:
    """Return one sentence about settings that are not valid; their variables begin with `prefix`."""
    parts = []
    for error in errors:
        name = ".".join(str(part) for part in error["loc"]).upper().removeprefix(prefix)
        if error["type"] == "extra_forbidden":
            parts.append(f"{prefix}{name} is not a setting")
        elif error["type"] == "too_short":
            parts.append(f"{prefix}{name}: at least {error['ctx']['min_length']} letters are needed")
        else:
            message = error["msg"].removeprefix("Value error, ")
            parts.append(f"{prefix}{name}: {message}" if name else message)
    return f"The settings cannot be used: {'; '.join(parts)}."

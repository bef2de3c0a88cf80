"""Values that settings take: how they are read from text, and checked."""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import Annotated, Final
from urllib.parse import urlsplit

from cronsim import CronSim, CronSimError
from pydantic import AfterValidator, BeforeValidator
from pydantic_settings import NoDecode

from index.keys.api_keys import Role, parse_grants

_DEVICE: Final = re.compile(r"auto|meta|(cpu|cuda|mps|xpu)(:\d+)?")
_CRON_FIELDS: Final = ("minute", "hour", "day", "month", "weekday")
# A name or an address, without a port; with a first dot, or `*.`, all names below it.
_HOST: Final = re.compile(r"\*|(\*?\.)?[A-Za-z0-9_-][A-Za-z0-9._-]*|\[?[0-9A-Fa-f:.]+\]?")
# As browsers send it: lower case, no path. A wildcard would let every page of the web call the service.
_ORIGIN: Final = re.compile(r"https?://[a-z0-9._\[\]:-]+")
_AN_ORIGIN: Final = "an origin such as https://viewer.example.org"
# Sources of a content security policy, wildcards among them; none may end its directive.
_ANCESTOR: Final = re.compile(r"[^;,'\" \r\n]*")
_PUBLIC_URL: Final = re.compile(rf"{_ORIGIN.pattern}(/[a-z0-9._~/-]*)?")


def is_safe_url(url: str) -> bool:
    """Whether nobody can tamper with responses of an address: HTTPS, or HTTP on this machine."""
    try:
        parts = urlsplit(url)
        name = parts.hostname or ""
        local = name == "localhost" or (parts.scheme == "http" and ip_address(name).is_loopback)
    except ValueError:
        return False
    is_plain = parts.username is None and not parts.query and not parts.fragment
    return bool(name) and is_plain and (parts.scheme == "https" or (parts.scheme == "http" and local))


def _checked_public_url(url: str) -> str:
    """Return the address of the service in browsers, without a final slash."""
    address = url.rstrip("/")
    origin, path = _PUBLIC_URL.fullmatch(address.lower()), address.partition("://")[2].partition("/")[2]
    if origin is None or any(not part or part in (".", "..") for part in path.split("/") if path):
        raise ValueError(f"{url!r} is not an address such as https://images.example.org")
    return address


def _each(form: re.Pattern[str], described: str) -> AfterValidator:
    """What checks that each of several values has a form."""

    def check(values: tuple[str, ...]) -> tuple[str, ...]:
        for value in values:
            if not form.fullmatch(value):
                raise ValueError(f"{value!r} is not {described}")
        return values

    return AfterValidator(check)


def _checked_times(times: str) -> str:
    if len(times.split()) != len(_CRON_FIELDS):
        raise ValueError(f"give {len(_CRON_FIELDS)} parts: {', '.join(_CRON_FIELDS)}")
    try:
        CronSim(times, datetime.now(UTC))
    except CronSimError as error:
        raise ValueError(f"{error}: give times as in a crontab, such as 0 3 * * 0") from None
    return times


def is_time(crontab: str, minute: datetime) -> bool:
    """Whether a minute is one of the times of a setting."""
    return next(CronSim(crontab, minute - timedelta(minutes=1))) == minute


def _parsed_roles(value: object) -> dict[str, Mapping[str, frozenset[Role]]]:
    try:
        groups = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        groups = None
    if not isinstance(groups, dict):
        raise ValueError('give JSON such as {"radiology": {"scenes": ["reader"]}}')
    return {str(group): parse_grants(grants) for group, grants in groups.items()}


def _split_commas(value: object) -> object:
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


def _checked_device(name: str) -> str:
    if not _DEVICE.fullmatch(name):
        raise ValueError(f"{name!r} is not auto, cpu, cuda or cuda:N")
    return name


BY_COMMAS: Final = BeforeValidator(_split_commas)
Names = Annotated[tuple[str, ...], NoDecode, BY_COMMAS]
RolesOfGroups = Annotated[dict[str, dict[str, frozenset[Role]]], NoDecode, BeforeValidator(_parsed_roles)]
# As in a crontab.
Times = Annotated[str, AfterValidator(_checked_times)]
DeviceName = Annotated[str, AfterValidator(_checked_device)]
PublicUrl = Annotated[str, AfterValidator(_checked_public_url)]
Hosts = Annotated[Names, _each(_HOST, "a name without a port, such as images.example.org")]
Origins = Annotated[Names, _each(_ORIGIN, _AN_ORIGIN)]
Ancestors = Annotated[Names, _each(_ANCESTOR, _AN_ORIGIN)]

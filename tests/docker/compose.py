"""The compose files, as Compose reads them."""

import re
from typing import Any

import yaml

from tests.docker.dockerfile import ROOT


def read_compose(name: str | None = None) -> dict[str, Any]:
    """Read docker-compose.yml, or docker/compose.NAME.yml."""
    file = ROOT / "docker-compose.yml" if name is None else ROOT / "docker" / f"compose.{name}.yml"
    found: dict[str, Any] = yaml.safe_load(file.read_text("utf-8"))
    return found


def merged_services(overlay: str, **variables: str) -> dict[str, Any]:
    """The services of docker-compose.yml and an overlay together, with the variables of an `.env` filled in.

    Raises:
        KeyError: A variable is missing that has no default.
    """
    services: dict[str, Any] = _merged(read_compose()["services"], read_compose(overlay)["services"])
    return {name: _filled(service, variables) for name, service in services.items()}


def _merged(base: Any, overlay: Any) -> Any:
    """Mappings together; of anything else what the overlay says."""
    if not (isinstance(base, dict) and isinstance(overlay, dict)):
        return overlay
    return base | {name: _merged(base.get(name), value) for name, value in overlay.items()}


def _filled(value: Any, variables: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {name: _filled(inner, variables) for name, inner in value.items()}
    if isinstance(value, list):
        return [_filled(inner, variables) for inner in value]
    return (
        re.sub(r"\$\{.*?\}", lambda found: _value(found[0], variables), value)
        if isinstance(value, str)
        else value
    )


def _value(words: str, variables: dict[str, str]) -> str:
    """What stands for `${NAME}`, `${NAME:-default}` or `${NAME:?what to do}`."""
    name, _, otherwise = words.strip("${}").partition(":")
    return variables.get(name) or (otherwise[1:] if otherwise.startswith("-") else variables[name])

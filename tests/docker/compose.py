"""The compose files, as Compose reads them."""

from typing import Any

import yaml

from tests.docker.dockerfile import ROOT


def read_compose(name: str | None = None) -> dict[str, Any]:
    """Read docker-compose.yml, or docker/compose.NAME.yml."""
    file = ROOT / "docker-compose.yml" if name is None else ROOT / "docker" / f"compose.{name}.yml"
    found: dict[str, Any] = yaml.safe_load(file.read_text("utf-8"))
    return found

"""The compose files as podman-compose resolves them."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from check.containers import Service

REPOSITORY = Path(__file__).parents[2]


def resolved(*overlays: str, **variables: str) -> Mapping[str, Service]:
    """Returns the services of docker-compose.yml and of files docker/compose.NAME.yml together."""
    files = ["docker-compose.yml", *(f"docker/compose.{name}.yml" for name in overlays)]
    program = Path(sys.executable).with_name("podman-compose")
    # Without --dry-run it would look for Podman first.
    done = subprocess.run(
        [program, "--dry-run", *(f"--file={file}" for file in files), "config"],
        cwd=REPOSITORY,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        check=True,
    )
    services: dict[str, Any] = yaml.safe_load(done.stdout)["services"]
    return services

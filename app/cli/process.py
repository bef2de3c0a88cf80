"""Processes that run a command of `recoquest` for another one, and end with it: of jobs, and of trainings."""

import json
import os
import platform
import socket
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import distributions
from pathlib import Path

from app.cli.errors import ended
from app.cli.main import build
from app.jobs.kinds import command_line, digest_of
from app.settings import load_settings
from index.catalogue.collections import now
from training.common.atomic import write_text
from training.common.host import cores, end_with_parent, has_gpu_driver, keep_order_of_sums

# Searches on the same machine come first.
_NICENESS = 10


def main(purpose: str, parent: int, arguments: list[str]) -> None:
    """Run a command and leave the process with its exit code; be killed when the parent ends before.

    The purpose is `job`, or `training` for one of several processes that train together.
    """
    end_with_parent(parent)
    keep_order_of_sums()
    if purpose == "training":
        # The process that the user started says how a stopped training continues.
        ended(lambda: build()(arguments), tell_stop=False)
    os.nice(_NICENESS)
    ended(lambda: _run_job(Path(arguments[0]), arguments[1], arguments[2:]))


def _run_job(folder: Path, kind: str, arguments: Sequence[str]) -> None:
    command = command_line(kind, arguments, folder, load_settings().train_processes)
    _write_environment(folder / "environment.json", command)
    build()(command)


def _write_environment(path: Path, command: Sequence[str]) -> None:
    gpus = []
    if has_gpu_driver():
        import torch

        gpus = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    content = {
        "command": ["recoquest", *command],
        "began": now(),
        "folder": str(Path.cwd()),
        "settings": load_settings().printable(),
        "bundles": {word: digest for word in command if (digest := digest_of(Path(word))) is not None},
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "cores": cores(),
        "gpus": gpus,
        "python": platform.python_version(),
        "commit": _commit(),
        "packages": dict(sorted((package.name, package.version) for package in distributions())),
    }
    write_text(path, json.dumps(content, indent=2))


def _commit() -> str | None:
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])

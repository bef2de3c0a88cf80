"""The process of a job: a command of `recoquest` that ends with the worker that has started it."""

import json
import os
import platform
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import distributions
from pathlib import Path

from app.cli.errors import ended
from app.cli.main import build
from app.jobs.kinds import command_line
from app.settings import load_settings
from index.catalogue.collections import now
from training.common.atomic import atomic_file
from training.common.host import end_with_parent, has_gpu_driver, keep_order_of_sums

# Searches on the same machine come first.
_NICENESS = 10


def main(parent: int, folder: Path, kind: str, arguments: list[str]) -> None:
    """Do a job and leave the process with its exit code; be killed when the parent ends before.

    Args:
        parent: The process that has started this one.
        folder: Folder of the job.
        kind: Kind of the job.
        arguments: Arguments of the job.
    """
    end_with_parent(parent)
    os.nice(_NICENESS)
    keep_order_of_sums()

    def run() -> None:
        command = command_line(kind, arguments, folder, load_settings().train_processes)
        _write_environment(folder / "environment.json", command)
        build()(command)

    ended(run)


def _write_environment(path: Path, command: Sequence[str]) -> None:
    """Write down, as JSON, what this process runs a command of `recoquest` with."""
    content = {
        "command": ["recoquest", *command],
        "began": now(),
        "folder": str(Path.cwd()),
        "settings": load_settings().printable(),
        "bundles": _digests(command),
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "cores": len(os.sched_getaffinity(0)),
        "gpus": _gpus(),
        "python": platform.python_version(),
        "commit": _commit(),
        "packages": dict(sorted((found.name, found.version) for found in distributions())),
    }
    with atomic_file(path) as file:
        file.write(json.dumps(content, indent=2).encode() + b"\n")


def _gpus() -> list[str]:
    if not has_gpu_driver():
        return []
    import torch

    return [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]


def _digests(command: Sequence[str]) -> Mapping[str, str]:
    """The digests of the bundles among the arguments of a command."""
    found = {}
    for argument in command:
        try:
            found[argument] = json.loads(Path(argument, "digest.json").read_bytes())["digest"]
        except (OSError, ValueError, LookupError, TypeError):
            continue
    return found


def _commit() -> str | None:
    """The commit of a checkout that this runs from."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4:])

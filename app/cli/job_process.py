"""The process of a job: a command of `recoquest` that ends with the worker that has started it."""

import os
import sys
from pathlib import Path

from app.cli.errors import ended
from app.cli.main import build
from app.jobs.environment import write_environment
from app.jobs.kinds import command_line
from app.settings import load_settings
from training.host import end_with_parent, keep_order_of_sums

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
        write_environment(folder / "environment.json", command)
        build()(command)

    ended(run)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4:])

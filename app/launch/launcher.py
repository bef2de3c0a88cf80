"""The process that starts those that train together, and ends all of them when one fails."""

import os
import sys
from collections.abc import Sequence

from torch.distributed.run import main as launch

from app.launch.parent_death import end_with_parent


def main(parent: int, count: int, arguments: Sequence[str]) -> None:
    """Do what torchrun does, on this machine alone, until all processes have ended or one has failed."""
    end_with_parent(parent)
    launcher = ("--standalone", "--nproc-per-node", str(count), "--module", "app.cli.training_process")
    launch([*launcher, str(os.getpid()), *arguments])


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])

"""The process that starts those that train together, and ends all of them when one fails."""

import logging
import os
import sys
from collections.abc import Sequence

from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.run import parse_args, run

from training.common.host import end_with_parent


def main(parent: int, count: int, arguments: Sequence[str]) -> None:
    """Do what torchrun does, on this machine alone, until all processes have ended or one has failed."""
    end_with_parent(parent)
    launcher = ("--standalone", "--nproc-per-node", str(count), "--module", "app.cli.process")
    # The process that failed has said why; torch would add tracebacks of its launcher.
    logging.disable()
    try:
        run(parse_args([*launcher, "training", str(os.getpid()), *arguments]))  # type: ignore[no-untyped-call]
    except ChildFailedError:
        sys.exit(1)
    except SignalException as received:
        sys.exit(128 + received.sigval)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])

"""One of the processes that train together: a command that trains, until its launcher ends."""

import sys
from collections.abc import Sequence

from app.cli.errors import ended
from app.cli.main import build
from training.common.host import end_with_parent, keep_order_of_sums


def main(parent: int, arguments: Sequence[str]) -> None:
    """Run a command with the others, and leave the process with the command's exit code."""
    end_with_parent(parent)
    keep_order_of_sums()
    # The process that the user started says how a stopped training goes on.
    ended(lambda: build()(list(arguments)), tell_stop=False)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])

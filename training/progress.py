"""One progress bar for all long work: what is done, how fast, and the time left."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


class ProgressBar(Protocol):
    """What long work reports to."""

    def advance(self, count: int = 1, note: str = "") -> None:
        """Say that `count` more items are done; `note` is shown behind the bar."""


class _RichBar:
    def __init__(self, progress: Progress, total: int | None, description: str, done: int) -> None:
        self._progress = progress
        self._task = progress.add_task(description, total=total, completed=done, note="")

    def advance(self, count: int = 1, note: str = "") -> None:
        self._progress.update(self._task, advance=count, note=note)


@contextmanager
def progress_bar(
    description: str, total: int | None, *, done: int = 0, shown: bool = True
) -> Iterator[ProgressBar]:
    """Show a bar on standard error while the block runs; without a terminal only its last state is printed.

    Args:
        description: What is being done.
        total: Number of items; None when unknown.
        done: Items that an earlier run has finished already.
        shown: False keeps quiet.
    """
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, refresh_per_second=4, disable=not shown) as progress:
        yield _RichBar(progress, total, description, done)

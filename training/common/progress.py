"""What commands show on a terminal: tables, and one progress bar for all long work."""

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

# Names the file that whoever has started this process reads the progress from.
PROGRESS_VARIABLE: Final = "RECOQUEST_PROGRESS"
_FILE_SECONDS: Final = 0.5
_WIDTH_WITHOUT_TERMINAL: Final = 120


def console() -> Console:
    """Standard output; a file or a pipe gets a fixed width instead of the 80 columns of no terminal.

    Brackets and colons in texts and names are shown as they are, never read as rich's own markup.
    """
    width = None if sys.stdout.isatty() else _WIDTH_WITHOUT_TERMINAL
    return Console(width=width, highlight=False, markup=False, emoji=False)


class ProgressBar(Protocol):
    """Receiver of the progress of long work."""

    def advance(self, count: int = 1, note: str = "") -> None:
        """Say that `count` more items are done; `note` is shown behind the bar."""


class _RichBar:
    def __init__(self, progress: Progress, total: int | None, description: str, done: int) -> None:
        self._progress = progress
        self._task = progress.add_task(description, total=total, completed=done, note="")

    def advance(self, count: int = 1, note: str = "") -> None:
        self._progress.update(self._task, advance=count, note=note)


class _ProgressFile:
    """Keeps a file with the state of a bar, as one JSON object, and passes on what the bar is told."""

    def __init__(self, bar: ProgressBar, path: Path, total: int | None, description: str, done: int) -> None:
        self._bar = bar
        self._path = path
        self._state: dict[str, Any] = {"what": description, "done": done, "total": total, "note": ""}
        self.write()

    def advance(self, count: int = 1, note: str = "") -> None:
        self._bar.advance(count, note)
        self._state |= {"done": self._state["done"] + count, "note": note}
        if time.monotonic() - self._written >= _FILE_SECONDS:
            self.write()

    def write(self) -> None:
        """Write the state whole, so that a reader never sees a part; work goes on where that fails."""
        self._written = time.monotonic()
        part = self._path.with_name(f".{self._path.name}.part")
        with suppress(OSError):
            part.write_text(json.dumps(self._state), encoding="utf-8")
            part.replace(self._path)


@contextmanager
def progress_bar(
    description: str, total: int | None, *, done: int = 0, shown: bool = True
) -> Iterator[ProgressBar]:
    """Show a bar on standard error while the block runs; without a terminal only its last state is printed.

    A file that RECOQUEST_PROGRESS names has the bar's state besides, a few times a second.

    Args:
        description: Name of the work, shown before the bar.
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
    screen = Console(stderr=True)
    named = os.environ.get(PROGRESS_VARIABLE)
    with Progress(*columns, console=screen, refresh_per_second=4, disable=not shown) as progress:
        bar = _RichBar(progress, total, description, done)
        if not named or not shown:
            yield bar
            return
        file = _ProgressFile(bar, Path(named), total, description, done)
        yield file
        file.write()

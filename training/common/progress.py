"""What commands show on a terminal: tables, and one progress bar for all long work."""

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

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


class ProgressBar:
    """The progress of long work, on a bar and, as one JSON object, in a file if there is one."""

    def __init__(
        self, bar: Progress, file: Path | None, total: int | None, description: str, done: int
    ) -> None:
        self._bar = bar
        self._task = bar.add_task(description, total=total, completed=done, note="")
        self._file = file
        self._state: dict[str, Any] = {"what": description, "done": done, "total": total, "note": ""}
        self._written = 0.0
        self.write()

    def advance(self, count: int = 1, note: str = "") -> None:
        """Say that `count` more items are done; `note` is shown behind the bar."""
        self._bar.update(self._task, advance=count, note=note)
        self._state |= {"done": self._state["done"] + count, "note": note}
        if time.monotonic() - self._written >= _FILE_SECONDS:
            self.write()

    def write(self) -> None:
        """Write the file whole, so that a reader never sees a part; work goes on where that fails."""
        self._written = time.monotonic()
        if self._file is not None:
            part = self._file.with_name(f".{self._file.name}.part")
            with suppress(OSError):
                part.write_text(json.dumps(self._state), encoding="utf-8")
                part.replace(self._file)


@contextmanager
def progress_bar(
    description: str, total: int | None, *, done: int = 0, shown: bool = True
) -> Iterator[ProgressBar]:
    """Show a bar on standard error while the block runs; without a terminal only its last state is printed.

    A file that RECOQUEST_PROGRESS names also has the bar's state, a few times a second.

    `description` is shown before the bar, `done` items are finished from an earlier run, and `total` is None
    when it is unknown.
    """
    columns = (
        *(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()),
        *(TextColumn("left"), TimeRemainingColumn(), TextColumn("{task.fields[note]}")),
    )
    name = os.environ.get(PROGRESS_VARIABLE) if shown else None
    screen = Console(stderr=True)
    with Progress(*columns, console=screen, refresh_per_second=4, disable=not shown) as progress:
        bar = ProgressBar(progress, Path(name) if name else None, total, description, done)
        yield bar
        bar.write()

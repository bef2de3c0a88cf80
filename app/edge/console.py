"""Tables of commands; apart from the log, whose imports would slow the start of every command down."""

import sys

from rich.console import Console

_WIDTH_WITHOUT_TERMINAL = 120


def console() -> Console:
    """Standard output; a file or a pipe gets a fixed width instead of the 80 columns of no terminal.

    Brackets and colons in texts and names are shown as they are, never read as rich's own markup.
    """
    width = None if sys.stdout.isatty() else _WIDTH_WITHOUT_TERMINAL
    return Console(width=width, highlight=False, markup=False, emoji=False)

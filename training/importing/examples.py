"""Values of a table that a report names: their number, and the first ones with their lines."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

_MOST: Final = 10
_LONGEST: Final = 60


@dataclass
class Examples:
    """Values of one kind in one column."""

    count: int = 0
    shown: list[str] = field(default_factory=list)

    numbers: list[int] = field(default_factory=list)

    def add(self, value: str, line: int) -> None:
        """Count a value; the first ones are kept with their lines."""
        self.add_words(lambda: f"{shortened(value)} on line {line}", line)

    def add_words(self, words: Callable[[], str], line: int) -> None:
        """Count a value; the first ones are kept in words of their own, which are made if they are."""
        self.count += 1
        if len(self.shown) < _MOST:
            self.shown.append(words())
            self.numbers.append(line)

    def times(self, one: str, several: str) -> str:
        """The number of values before a word in the singular or the plural."""
        return f"{self.count:,} {one if self.count == 1 else several}"

    def lines(self) -> str:
        """The lines of the first values, such as "lines 3, 4 and 510 more"."""
        shown = ", ".join(map(str, self.numbers))
        return f"{'line' if self.count == 1 else 'lines'} {shown}{self._more(' and')}"

    def __str__(self) -> str:
        return ", ".join(self.shown) + self._more(", and")

    def _more(self, before: str) -> str:
        more = self.count - len(self.shown)
        return f"{before} {more:,} more" if more else ""


def shortened(value: str) -> str:
    """A value in quotes, cut for a message."""
    return repr(value if len(value) <= _LONGEST else f"{value[:_LONGEST]}...")

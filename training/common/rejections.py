"""Lines that a run had to leave out, and when they are too many."""

import math
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from training.common.errors import DataError

# More than these are counted.
_MOST_NAMED: Final = 50
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Rejection:
    """One line that cannot be used, and why.

    Attributes:
        line: Its number, from 1.
        reason: A sentence without its full stop.
        table: Name of the table that has the line, where a data set has several.
        rows: Number of rows that go with it, such as those of an image with several texts.
    """

    line: int
    reason: str
    table: str = ""
    rows: int = 1


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Items that an import passes over on purpose, such as files of another kind; no share limits them.

    Attributes:
        reason: Names the items and the reason, such as ".heic files: convert them to JPEG".
    """

    reason: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class Usable(Generic[Item]):
    """What can be used of a file, in its order, and what was left out."""

    items: tuple[Item, ...]
    rejections: "Rejections"


class Rejections:
    """The tally of one run over `total` lines; it stops the run above a share of them.

    Args:
        total: Number of lines that the run goes through.
        max_share: Largest share of them that may be left out, from 0 to 1; by default, any number may.
        source: What is read, for the message.
        unit: What is counted, for the message.
        patience: Number of items to wait for before the run stops, so that a user sees more than the first;
            `finish` looks at fewer.

    Raises:
        DataError: The share is not between 0 and 1.
    """

    def __init__(
        self,
        total: int,
        max_share: float = 1.0,
        source: str = "the manifest",
        unit: str = "line",
        patience: int = 1,
    ) -> None:
        if not 0.0 <= max_share <= 1.0:
            raise DataError(
                f"The share of {unit}s that may be left out must be from 0 to 1, not {max_share}."
            )
        self._total = total
        self._max_share = max_share
        self._source = source
        self._unit = unit
        self._patience = patience
        self._counted = f"{unit}s"
        self._before: Rejections | None = None
        self._items: list[Rejection] = []
        self._rows = 0

    @classmethod
    def of(cls, items: Iterable[Rejection], total: int, source: str) -> "Rejections":
        """The tally of items that turned out to be broken, however many."""
        tally = cls(total, source=source)
        for item in items:
            tally.add(item.line, item.reason)
        return tally

    @property
    def items(self) -> tuple[Rejection, ...]:
        """Everything left out so far, in the order in which it was found."""
        return tuple(self._items)

    @property
    def share(self) -> float:
        """The share that was left out, with that of the tally before."""
        share = len(self) / max(1, self._total)
        if self._before is None:
            return share
        # The later run may go through a part of what is left, such as one split.
        return self._before.share + (1 - self._before.share) * share

    def __len__(self) -> int:
        return self._rows

    def continued(self, total: int, counted: str = "images") -> "Rejections":
        """Begin the tally of a later run over what was not left out, or a part of it.

        The largest share is that of both together; the items are those of the later run alone.

        Args:
            total: Number of lines that the later run goes through.
            counted: What is counted there, for the message.
        """
        later = Rejections(total, self._max_share, self._source, self._unit)
        later._counted, later._before = counted, self
        return later

    def joined(self, others: Iterable["Rejections"]) -> "Rejections":
        """The tally of all who went through these lines, with each line that any of them left out."""
        whole = copy(self)
        items = {(item.line, item.table): item for tally in (self, *others) for item in tally.items}
        whole._items, whole._rows = list(items.values()), sum(item.rows for item in items.values())
        return whole

    def add(self, line: int, reason: str, table: str = "", rows: int = 1) -> None:
        """Leave one line out.

        Raises:
            DataError: More than the allowed share has been left out.
        """
        self._items.append(Rejection(line, reason, table, rows))
        self._rows += rows
        if len(self._items) >= self._patience:
            self._check(" up to here")

    def finish(self) -> None:
        """End a tally with patience.

        Raises:
            DataError: More than the allowed share has been left out.
        """
        self._check("")

    def _check(self, so_far: str) -> None:
        if self.share > self._max_share and not math.isclose(self.share, self._max_share):
            before = "" if self._before is None else f"{self._before._count()} and "
            raise self.error(
                f"Too much of {self._source} cannot be used: {before}{self._count()}{so_far}, "
                f"more than the share of {self._max_share:.4g} that may be left out. "
                "Mend them or allow a larger share."
            )

    def error(self, sentence: str) -> DataError:
        """Make an error that names what was left out so far in its notes, one a line."""
        error = DataError(sentence)
        for note in (*(() if self._before is None else self._before.named()), *self.named()):
            error.add_note(note)
        return error

    def named(self) -> Sequence[str]:
        """One sentence for each of the first lines left out, with its number; and how many more."""
        named = [self._named(item) for item in self._items[:_MOST_NAMED]]
        more = len(self._items) - len(named)
        return [*named, f"And {more:,} more."] if more else named

    def _named(self, item: Rejection) -> str:
        table = f" of {item.table}" if item.table else ""
        rows = f" ({item.rows:,} {'row' if self._unit == 'line' else self._unit}s)" if item.rows > 1 else ""
        end = "?" if item.reason.endswith("?") else "."
        return f"{self._unit.capitalize()} {item.line}{table}: {item.reason.rstrip('.?')}{rows}{end}"

    def summary(self) -> str:
        """The number of lines left out, then the first ones on lines of their own."""
        if not self._items:
            return f"All {self._total:,} {self._counted} of {self._source} can be used."
        return "\n".join([f"{self._count()} of {self._source} cannot be used.", *self.named()])

    def _count(self) -> str:
        return f"{len(self):,} of {self._total:,} {self._counted}"

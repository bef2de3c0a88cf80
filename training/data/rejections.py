"""What a run had to leave out, and when that is too much."""

import math
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass

from training.errors import DataError


@dataclass(frozen=True, slots=True)
class Rejection:
    """One line that cannot be used, and why.

    Attributes:
        line: Its number, from 1.
        reason: A sentence without its full stop.
        table: Name of the table that has the line, where a data set has several.
    """

    line: int
    reason: str
    table: str = ""


class Rejections:
    """The tally of one run over `total` lines; it stops the run above a share of them.

    Args:
        total: Number of lines that the run goes through.
        max_share: Largest share of them that may be left out, from 0 to 1.
        source: What is read, for the message.
        unit: What is counted, for the message.

    Raises:
        DataError: The share is not between 0 and 1.
    """

    def __init__(
        self, total: int, max_share: float = 0.01, source: str = "the manifest", unit: str = "line"
    ) -> None:
        if not 0.0 <= max_share <= 1.0:
            raise DataError(
                f"The share of {unit}s that may be left out must be from 0 to 1, not {max_share}."
            )
        self._total = total
        self._max_share = max_share
        self._source = source
        self._unit = unit
        self._counted = f"{unit}s"
        self._before: Rejections | None = None
        self._items: list[Rejection] = []

    @property
    def items(self) -> tuple[Rejection, ...]:
        """Everything left out so far, in the order in which it was found."""
        return tuple(self._items)

    @property
    def share(self) -> float:
        """Which share was left out, together with what was left out before."""
        share = len(self._items) / max(1, self._total)
        if self._before is None:
            return share
        # Of what was not left out before, a run may go through a part, such as one split.
        return self._before.share + (1 - self._before.share) * share

    def __len__(self) -> int:
        return len(self._items)

    def continued(self, total: int, counted: str = "images") -> "Rejections":
        """Begin the tally of a later run over what was not left out, or a part of it.

        The largest share is that of both together; the items are those of the later run alone.

        Args:
            total: Number of lines that the later run goes through.
            counted: What is counted there, for the message.
        """
        later = Rejections(total, self._max_share, self._source, self._unit)
        later._counted = counted
        later._before = self
        return later

    def joined(self, others: Iterable["Rejections"]) -> "Rejections":
        """The tally of all who went through these lines, with each line that any of them left out."""
        whole = copy(self)
        found = {(item.line, item.table): item for tally in (self, *others) for item in tally.items}
        whole._items = list(found.values())
        return whole

    def add(self, line: int, reason: str, table: str = "") -> None:
        """Leave one line out.

        Raises:
            DataError: More than the allowed share has been left out.
        """
        self._items.append(Rejection(line, reason, table))
        if self.share > self._max_share and not math.isclose(self.share, self._max_share):
            raise self.error(
                f"Too much of {self._source} cannot be used: {self._count()} up to here, "
                f"more than the share of {self._max_share:.4g} that may be left out. "
                "Mend them or allow a larger share."
            )

    def error(self, sentence: str) -> DataError:
        """Make an error that has everything left out so far as its notes, one a line."""
        error = DataError(sentence)
        for note in (*(() if self._before is None else self._before.named()), *self.named()):
            error.add_note(note)
        return error

    def named(self) -> Sequence[str]:
        """One sentence for each line that was left out, with its number."""
        return [
            f"{self._unit.capitalize()} {item.line}{item.table and f' of {item.table}'}: "
            f"{item.reason.rstrip('.')}."
            for item in self._items
        ]

    def summary(self) -> str:
        """What was left out: the number, then each on a line of its own."""
        if not self._items:
            return f"All {self._total:,} {self._counted} of {self._source} can be used."
        return "\n".join([f"{self._own_count()} of {self._source} cannot be used.", *self.named()])

    def _count(self) -> str:
        before = "" if self._before is None else f"{self._before._own_count()} and "
        return f"{before}{self._own_count()}"

    def _own_count(self) -> str:
        return f"{len(self._items):,} of {self._total:,} {self._counted}"

"""What a run had to leave out, and when that is too much."""

from dataclasses import dataclass
from typing import Final

from training.errors import DataError

_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class Rejection:
    """One line that cannot be used, and why."""

    line: int
    reason: str


class Rejections:
    """The tally of one run over `total` lines; it stops the run above a share of them.

    Args:
        total: Number of lines that the run goes through.
        max_share: Largest share of `total` that may be left out, from 0 to 1.
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
        self._items: list[Rejection] = []

    @property
    def items(self) -> tuple[Rejection, ...]:
        """Everything left out so far, in the order in which it was found."""
        return tuple(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def add(self, line: int, reason: str) -> None:
        """Leave one line out.

        Raises:
            DataError: More than the allowed share has been left out.
        """
        self._items.append(Rejection(line, reason))
        if len(self._items) > self._max_share * self._total:
            raise DataError(
                f"Too much of {self._source} cannot be used: {self._count()} up to here, "
                f"more than the share of {self._max_share:.4g} that may be left out. "
                f"Mend them or allow a larger share. {self._first()}"
            )

    def summary(self) -> str:
        """What was left out: the number, and the first few by line."""
        if not self._items:
            return f"All {self._total:,} {self._unit}s of {self._source} can be used."
        return f"{self._count()} of {self._source} cannot be used. {self._first()}"

    def _count(self) -> str:
        return f"{len(self._items):,} of {self._total:,} {self._unit}s"

    def _first(self) -> str:
        reasons = [f"{self._unit} {item.line}: {item.reason}".rstrip(".") for item in self._items[:_SHOWN]]
        shown = "; ".join(reasons)
        more = "; and more" if len(self._items) > _SHOWN else ""
        return f"{shown[:1].upper()}{shown[1:]}{more}."

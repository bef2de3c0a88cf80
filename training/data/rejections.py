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
        total: Number of lines or items that the run goes through.
        max_share: Largest share of `total` that may be left out, from 0 to 1.
        source: What is read, for the message.
    """

    def __init__(self, total: int, max_share: float = 0.01, source: str = "the manifest") -> None:
        if not 0.0 <= max_share <= 1.0:
            raise DataError(f"The largest share of rejected lines must lie between 0 and 1, not {max_share}.")
        self._total = total
        self._max_share = max_share
        self._source = source
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
                f"{self.summary()}. At most {self._max_share:.1%} may be left out: "
                "mend the lines, or allow a larger share of rejected lines."
            )

    def summary(self) -> str:
        """One sentence that counts what was left out and names the first few, without a full stop."""
        if not self._items:
            return f"All {self._total:,} lines of {self._source} can be used"
        shown = "; ".join(f"line {item.line}: {item.reason}" for item in self._items[:_SHOWN])
        more = "; ..." if len(self._items) > _SHOWN else ""
        return (
            f"{len(self._items):,} of {self._total:,} lines of {self._source} cannot be used: {shown}{more}"
        )

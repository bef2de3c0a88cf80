"""The result of a pass over an archive."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from index.catalogue.studies import Outcome

_SHOWN: Final = 8


@dataclass(slots=True)
class SyncReport:
    """Counts of instances, by outcome.

    Attributes:
        taken: Instances that this pass brought over.
        up_to_date: Instances that were brought over before.
        refused: Instances that cannot be used, or that the archive did not give.
        left_out: Instances that the filters leave out, and those that are no images.
        quarantined: Instances that may show a patient's name.
        removed: Images of instances that the archive no longer has, and that were removed.
        reports: Structured reports among those that this pass brought over.
        reports_removed: Structured reports that the archive no longer has, and that were removed.
        studies: Studies that the archive has within the filters.
        absent: Named studies that the archive does not have within the filters, and that were not known.
        failures: Pieces of studies that the archive failed to give; they are tried again by the next pass.
        waiting: Whether the hours ended before everything was looked at.
        doubts: Sentences on studies that the archive may have and does not list.
        reasons: Number of instances by the reason why they were not taken in this pass.
    """

    taken: int = 0
    up_to_date: int = 0
    refused: int = 0
    left_out: int = 0
    quarantined: int = 0
    removed: int = 0
    reports: int = 0
    reports_removed: int = 0
    studies: int = 0
    absent: int = 0
    failures: int = 0
    waiting: bool = False
    doubts: list[str] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)

    @property
    def found(self) -> int:
        """Instances that the archive has within the filters of studies."""
        return self.taken + self.up_to_date + self.refused + self.left_out + self.quarantined

    @property
    def has_changed(self) -> bool:
        """True if the pass changed the collection."""
        return bool(self.taken or self.removed or self.reports_removed)

    def count(self, outcome: Outcome, reason: str = "", *, known: bool = False) -> None:
        """Count an instance; `known`: that is its outcome of an earlier pass."""
        if outcome == "taken":
            self.taken += not known
            self.up_to_date += known
        elif outcome == "refused":
            self.refused += 1
        elif outcome == "left out":
            self.left_out += 1
        else:
            self.quarantined += 1
        if reason:
            self.reasons[f"{outcome}: {reason.rstrip('.')}"] += 1

    def line(self, collection: str) -> str:
        """Return the result in one line."""
        parts = (
            (self.taken, "taken"),
            (self.up_to_date, "up to date"),
            (self.refused, "refused"),
            (self.left_out, "left out"),
            (self.quarantined, "quarantined"),
        )
        counted = " + ".join(f"{count:,} {name}" for count, name in parts)
        removed = f" Removed: {self.removed:,}." if self.removed else ""
        of_reports = f" Reports: {self.reports:,} taken, {self.reports_removed:,} removed."
        reports = of_reports if self.reports or self.reports_removed else ""
        more = " or more" if self.doubts else ""
        line = f"{collection}: {self.studies:,} studies{more}; {self.found:,} instances found = {counted}."
        return f"{line}{removed}{reports}"

    def sentences(self) -> list[str]:
        """Return the doubts, and the commonest reasons why instances were not taken, with their numbers."""
        return self.doubts + [f"{count:,} {reason}." for reason, count in self.reasons.most_common(_SHOWN)]

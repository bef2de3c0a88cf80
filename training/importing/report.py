"""The report of an import: everything found, and what became of it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from training.common.record import Record
from training.common.rejections import Rejections
from training.importing.doubts import Doubt
from training.importing.examples import Examples, shortened

# Beginnings of the reasons to leave out what systems put into a folder: no user misses it.
IN_FOLDERS: Final = "files in folders named "
HIDDEN_FILES: Final = "hidden files and files of systems"
OF_SYSTEMS: Final = (IN_FOLDERS, HIDDEN_FILES)
# So many reasons are given in full, then so many in brief; more are summed up.
_MOST_REASONS: Final = 12
_DOUBTS: Final[Mapping[Doubt, tuple[tuple[str, str], str]]] = {
    "cut": (
        ("image seems", "images seem"),
        "cut, as the file ends before the picture: copy it again, since training refuses it, and so does "
        "indexing without RECOQUEST_ACCEPT_TRUNCATED_IMAGES",
    ),
    "preview": (
        ("TIFF image has", "TIFF images have"),
        "a larger page than the first, which is taken as it is not marked as a preview",
    ),
}
_MOST_BRIEF: Final = 60
_MOST_OF_SYSTEMS: Final = 4


@dataclass(frozen=True)
class Tally:
    """The items of one source: found = taken + listed + refused + left out.

    Attributes:
        source: What lists them, for messages.
        unit: What is counted, for messages.
        found: Number of items in the source.
        taken: Number of items that the manifest has, and whose files were decoded.
        refused: Number of items that cannot be used; each is named in the report's rejections.
        left_out: Number of items for each reason to pass them over on purpose.
        listed: Number of items that the manifest has, and whose files were not decoded.
    """

    source: str
    unit: str
    found: int
    taken: int
    refused: int
    left_out: Mapping[str, int]
    listed: int = 0

    @property
    def unaccounted(self) -> int:
        """Number of items found of which nothing is known; 0 for a reader that counts rightly."""
        return self.found - self.taken - self.listed - self.refused - sum(self.left_out.values())

    def sentences(self) -> list[str]:
        """The numbers, then a line with each reason to leave something out, the most frequent first."""
        parts = f"{self.taken:,} taken, {f'{self.listed:,} listed, ' if self.listed else ''}"
        parts += f"{self.refused:,} refused, {sum(self.left_out.values()):,} left out"
        if self.unaccounted:
            parts += f", {self.unaccounted:,} not accounted for"
        named = name_reasons(self.left_out)
        return [
            f"Found {self.found:,} {_several(self.unit, self.found)} in {self.source}: {parts}.",
            *([f"Left out: {'; '.join(named)}."] if named else ()),
        ]


def name_reasons(left_out: Mapping[str, int]) -> list[str]:
    """Reasons with their numbers: the files of users first, then those of systems."""
    reasons = sorted(left_out.items(), key=lambda item: (-item[1], item[0]))
    of_systems = [item for item in reasons if item[0].startswith(OF_SYSTEMS)]
    of_users = [item for item in reasons if not item[0].startswith(OF_SYSTEMS)]
    brief = [(_brief(reason), count) for reason, count in of_users[_MOST_REASONS:]]
    lines = [f"{reason}: {count:,}" for reason, count in [*of_users[:_MOST_REASONS], *brief[:_MOST_BRIEF]]]
    if rest := sum(count for _, count in brief[_MOST_BRIEF:]):
        lines.append(f"{len(brief) - _MOST_BRIEF} more kinds of files: {rest:,}")
    lines += [f"{reason}: {count:,}" for reason, count in of_systems[:_MOST_OF_SYSTEMS]]
    if rest := sum(count for _, count in of_systems[_MOST_OF_SYSTEMS:]):
        lines.append(f"files in {len(of_systems) - _MOST_OF_SYSTEMS} more folders of systems: {rest:,}")
    return lines


def _brief(reason: str) -> str:
    """A reason without what is to be done about it."""
    return reason.partition(", which")[0].partition(" (")[0]


@dataclass
class Contents:
    """Texts and labels of a manifest, counted as they are written."""

    records: int = 0
    texts: int = 0
    with_texts: int = 0
    fragments: Examples = field(default_factory=Examples)
    labels: Counter[str] = field(default_factory=Counter)
    doubts: dict[Doubt, Examples] = field(default_factory=dict)

    def add(self, record: Record) -> None:
        """Count one record."""
        self.records += 1
        self.texts += len(record.texts)
        self.with_texts += bool(record.texts)
        if record.report and not record.texts:
            report, image = record.report, record.image
            self.fragments.add_words(lambda: f"{shortened(report)} of {image!r}", record.line)
        self.labels.update(set(record.labels))

    def sentences(self) -> list[str]:
        """Number of texts and labels; nothing about labels where there are none."""
        images = f"{self.records:,} {_several('image', self.records)}"
        lines = [f"{self.texts:,} {_several('text', self.texts)}, for {self.with_texts:,} of {images}."]
        if self.fragments.count:
            have = self.fragments.times("image has", "images have")
            lines.append(
                f"{have} a report and no text, as all its sentences are fragments: {self.fragments}."
            )
        if self.labels:
            (label, count), *_ = self.labels.most_common(1)
            lines.append(
                f"{len(self.labels):,} {_several('label', len(self.labels))}; "
                f"the most frequent is {label!r}, of {count:,} of {images}."
            )
        for doubt, examples in self.doubts.items():
            lines.append(f"{examples.times(*_DOUBTS[doubt][0])} {_DOUBTS[doubt][1]}: {examples}.")
        return lines


@dataclass(frozen=True)
class ImportReport:
    """Outcome of an import.

    Attributes:
        folder: Where the manifest lies.
        records: Number of its lines.
        rejections: Everything that cannot be used, by line.
        tallies: Rows or files of each source, each with what became of it.
        contents: Texts and labels of the records.
        notes: Sentences on how the source was read.
    """

    folder: Path
    records: int
    rejections: Rejections
    tallies: Sequence[Tally] = ()
    contents: Contents = field(default_factory=Contents)
    notes: Sequence[str] = ()

    def sentences(self) -> list[str]:
        """The whole report but the rejections, one sentence a line."""
        counted = [line for tally in self.tallies for line in tally.sentences()]
        if any(tally.listed for tally in self.tallies):
            counted.append("Listed images begin as images do and were not decoded; --check decodes them all.")
        return [*self.notes, *counted, *self.contents.sentences()]


def _several(unit: str, count: int) -> str:
    return unit if count == 1 else f"{unit}s"

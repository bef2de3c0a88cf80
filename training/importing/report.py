"""The report of an import: everything in a source, and what became of it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from training.common.record import Record
from training.common.rejections import Rejections

# Why a file that is listed may not show what its owner expects; "" without a doubt.
Doubt = Literal["", "cut", "preview"]

# Beginnings of the reasons to leave out what systems put into a folder: no user misses it.
IN_FOLDERS: Final = "files in folders named "
HIDDEN_FILES: Final = "hidden files and files of systems"
_OF_SYSTEMS: Final = (IN_FOLDERS, HIDDEN_FILES)
_MOST_REASONS: Final = 20
_MOST_EXAMPLES: Final = 10
_LONGEST: Final = 60
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


@dataclass
class Examples:
    """The number of values of one kind, and the first ones with their lines."""

    count: int = 0
    shown: list[str] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)

    def add(self, value: str, line: int) -> None:
        """Count a value; the first ones are kept in quotes."""
        self.note(f"{shortened(value)} on line {line}" if len(self.shown) < _MOST_EXAMPLES else "", line)

    def note(self, words: str, line: int = 0) -> None:
        """Count a value; the first ones are kept in these words."""
        self.count += 1
        if len(self.shown) < _MOST_EXAMPLES:
            self.shown.append(words)
            self.numbers.append(line)

    def times(self, one: str, several: str) -> str:
        """The number of values before a word in the singular or the plural."""
        return f"{self.count:,} {one if self.count == 1 else several}"

    def lines(self) -> str:
        """The lines of the first values, such as "lines 3, 4 and 510 more"."""
        shown = ", ".join(map(str, self.numbers))
        return f"{_plural('line', self.count)} {shown}{self._more(' and')}"

    def __str__(self) -> str:
        return ", ".join(self.shown) + self._more(", and")

    def _more(self, before: str) -> str:
        more = self.count - len(self.shown)
        return f"{before} {more:,} more" if more else ""


def shortened(value: str) -> str:
    """A value in quotes, cut for a message."""
    return repr(value if len(value) <= _LONGEST else f"{value[:_LONGEST]}...")


@dataclass(frozen=True)
class Tally:
    """The items of one source: found = taken + listed + refused + left out.

    Attributes:
        source: What lists them, for messages.
        unit: What is counted, for messages.
        taken: Number of items in the manifest whose files were decoded.
        refused: Number of items that cannot be used; each is named in the report's rejections.
        left_out: Number of items for each reason to pass them over on purpose.
        listed: Number of items in the manifest whose files were not decoded.
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
        """Number of items of which nothing is known; 0 for a reader that counts rightly."""
        return self.found - self.taken - self.listed - self.refused - sum(self.left_out.values())

    def sentences(self) -> list[str]:
        """The numbers, then a line with each reason to leave something out, the most frequent first."""
        parts = f"{self.taken:,} taken, {f'{self.listed:,} listed, ' if self.listed else ''}"
        parts += f"{self.refused:,} refused, {sum(self.left_out.values()):,} left out"
        if self.unaccounted:
            parts += f", {self.unaccounted:,} not accounted for"
        reasons = name_reasons(self.left_out)
        return [
            f"Found {self.found:,} {_plural(self.unit, self.found)} in {self.source}: {parts}.",
            *([f"Left out: {'; '.join(reasons)}."] if reasons else ()),
        ]


def name_reasons(left_out: Mapping[str, int]) -> list[str]:
    """Reasons with their numbers, the most frequent first: the files of users ahead of those of systems."""
    reasons = sorted(left_out.items(), key=lambda item: (item[0].startswith(_OF_SYSTEMS), -item[1], item[0]))
    lines = [f"{reason}: {count:,}" for reason, count in reasons[:_MOST_REASONS]]
    if more := reasons[_MOST_REASONS:]:
        lines.append(f"{len(more)} more reasons: {sum(count for _, count in more):,}")
    return lines


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
            self.fragments.note(f"{shortened(record.report)} of {record.image!r}")
        self.labels.update(tuple(dict.fromkeys(record.labels)))

    def sentences(self) -> list[str]:
        """Number of texts and labels; nothing about labels where there are none."""
        images = f"{self.records:,} {_plural('image', self.records)}"
        lines = [f"{self.texts:,} {_plural('text', self.texts)}, for {self.with_texts:,} of {images}."]
        if self.fragments.count:
            have = self.fragments.times("image has", "images have")
            lines.append(
                f"{have} a report and no text, as all its sentences are fragments: {self.fragments}."
            )
        if self.labels:
            (label, count), *_ = self.labels.most_common(1)
            lines.append(
                f"{len(self.labels):,} {_plural('label', len(self.labels))}; "
                f"the most frequent is {label!r}, of {count:,} of {images}."
            )
        for doubt, examples in self.doubts.items():
            lines.append(f"{examples.times(*_DOUBTS[doubt][0])} {_DOUBTS[doubt][1]}: {examples}.")
        return lines


@dataclass(frozen=True)
class ImportReport:
    """Outcome of an import.

    Attributes:
        rejections: Everything that cannot be used, by line.
        tallies: Rows or files of each source, each with what became of it.
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


def _plural(unit: str, count: int) -> str:
    return unit if count == 1 else f"{unit}s"

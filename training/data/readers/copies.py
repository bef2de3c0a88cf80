"""Images whose files are equal: one group where splits are drawn, and one image where one file has them."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from training.data.readers.common.examples import Examples
from training.data.readers.common.splits import draw_split
from training.data.readers.replaced import ReplacedManifest, first_split, ties
from training.data.record import MetadataValue, Record, Scalar, Split

_GROUP: Final = "copies-"
_GROUP_DIGITS: Final = 16


@dataclass(frozen=True)
class Settled:
    """Records with their final splits, and what was done to them.

    Attributes:
        records: In the order in which they were given; each has the digest of its file.
        notes: Sentences on copies.
    """

    records: list[Record]
    notes: list[str]


def settle(records: Sequence[Record], *, extracted: bool, replaced: ReplacedManifest, prefix: str) -> Settled:
    """Join the records of equal files, and draw the splits that no data set names.

    Records that share a group or a file get one split: the first that the data set names, else the one that
    they have in the manifest that is replaced, else one that is drawn by the group, or by the digest of the
    file where there is none. Named splits stay.

    Args:
        records: Each with the digest of its file.
        extracted: Whether the files came out of tables or shards. Records of equal files then become one
            image with all texts, unless their splits or groups differ.
        replaced: The manifest that is replaced.
        prefix: Beginning of the paths of images in it.
    """
    notes: list[str] = []
    if extracted:
        records = _joined(records, notes)
    sets = _Sets(records, replaced.splits, prefix)
    found = [replace(record, split=sets.split(record)) if record.drawn else record for record in records]
    if kept := sum(record.drawn and sets.is_kept(record) for record in records):
        notes.append(
            f"{kept:,} images keep the splits that they have in the manifest that this one replaces."
        )
    return Settled(_grouped(found, notes), notes)


def _joined(records: Sequence[Record], notes: list[str]) -> list[Record]:
    """One record for all of one file; its values are those of all of them."""
    alike: defaultdict[tuple[str | None, Split | None, str | None], list[Record]] = defaultdict(list)
    for record in records:
        alike[record.sha256, None if record.drawn else record.split, record.group].append(record)
    several = sum(len(same) > 1 for same in alike.values())
    if several:
        notes.append(
            f"{len(records) - len(alike) + several:,} records have the same file as another one: they became "
            f"{several:,} {'image' if several == 1 else 'images'} with all their texts, labels and metadata."
        )
    return [same[0] if len(same) == 1 else _join(same) for same in alike.values()]


def _join(same: Sequence[Record]) -> Record:
    reports = dict.fromkeys(record.report for record in same if record.report is not None)
    values: dict[str, list[Scalar]] = {}
    for name, value in chain.from_iterable(record.metadata.items() for record in same):
        own = values.setdefault(name, [])
        own += [item for item in (value if isinstance(value, tuple) else (value,)) if item not in own]
    metadata: dict[str, MetadataValue] = {
        name: own[0] if len(own) == 1 else tuple(own) for name, own in values.items()
    }
    return replace(
        same[0],
        texts=tuple(dict.fromkeys(chain.from_iterable(record.texts for record in same))),
        labels=tuple(dict.fromkeys(chain.from_iterable(record.labels for record in same))),
        report="\n\n".join(reports) or None,
        metadata=metadata,
        rows=sum(record.rows for record in same),
    )


class _Sets:
    """Sets of records that are tied by groups and equal files, and the split of each."""

    def __init__(self, records: Sequence[Record], before: Mapping[str, Split], prefix: str) -> None:
        self._above: dict[str, str] = {}
        for record in records:
            first, *others = ties(record)
            for other in others:
                one, two = sorted((self._top(first), self._top(other)))
                self._above[two] = one
        self._named: dict[str, Split] = {}
        for record in records:
            if not record.drawn:
                self._named.setdefault(self._top(ties(record)[0]), record.split)
        self._kept: dict[str, Split] = {}
        for record in records:
            top = self._top(ties(record)[0])
            for tie in ties(record, prefix + record.image):
                if tie in before:
                    self._kept[top] = first_split(before[tie], self._kept.get(top))
        # A set of one group, whatever its files, is drawn by its name: other films may join it.
        self._drawn: dict[str, str] = {}
        for record in records:
            top, name = self._top(ties(record)[0]), _draw_name(record)
            self._drawn[top] = min(name, self._drawn.get(top, name))

    def split(self, record: Record) -> Split:
        top = self._top(ties(record)[0])
        return self._named.get(top) or self._kept.get(top) or draw_split(self._drawn[top][1:])

    def is_kept(self, record: Record) -> bool:
        """Tell whether the split of a record is another one than would be drawn, by the manifest before."""
        top = self._top(ties(record)[0])
        kept = None if top in self._named else self._kept.get(top)
        return kept not in (None, draw_split(self._drawn[top][1:]))

    def _top(self, tie: str) -> str:
        while (above := self._above.get(tie, tie)) != tie:
            self._above[tie] = self._above.get(above, above)
            tie = above
        return tie


def _draw_name(record: Record) -> str:
    """The name to draw by, after a digit that puts groups ahead of files."""
    return f"1{record.sha256}" if record.group is None else f"0{record.group}"


def _grouped(records: Sequence[Record], notes: list[str]) -> list[Record]:
    """Records of equal files as one group, unless they have several groups or splits already."""
    places: defaultdict[str | None, list[int]] = defaultdict(list)
    for place, record in enumerate(records):
        places[record.sha256].append(place)
    copies, parted = Examples(), Examples()
    grouped = list(records)
    for digest, alike in places.items():
        first, *others = (records[place] for place in alike)
        for other in others:
            _add(copies, other, first)
        if other := next((other for other in others if other.split != first.split), None):
            _add(parted, other, first)
            continue
        groups = {record.group for record in (first, *others)} - {None}
        if others and len(groups) < 2:
            group = groups.pop() if groups else f"{_GROUP}{(digest or '')[:_GROUP_DIGITS]}"
            for place in alike:
                grouped[place] = replace(records[place], group=group)
    if copies.count:
        notes.append(f"{copies.times('file is a copy of another', 'files are copies of others')}: {copies}.")
    if parted.count:
        notes.append(
            f"{parted.times('file has copies', 'files have copies')} in another split, as the data set names "
            f"them; what is measured there was trained on: {parted}."
        )
    return grouped


def _add(examples: Examples, copy: Record, of: Record) -> None:
    examples.add_words(lambda: f"{copy.image!r} ({copy.split}) of {of.image!r} ({of.split})", copy.line)

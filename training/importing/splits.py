"""Splits of images, which equal files share and a new import keeps, and one image for equal files.

The manifest that an import replaces gives the splits of its images, and the report says what is gone of it.
"""

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Final, Self, get_args

from training.common.errors import DataError
from training.common.manifest import MANIFEST_NAME
from training.common.record import LineError, MetadataValue, Record, Scalar, Split, parse_line
from training.importing.report import Examples

SPLITS: Final[Mapping[str, Split]] = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validate": "val",
    "validation": "val",
    "dev": "val",
    "test": "test",
    "testing": "test",
}
_COMPONENT: Final = re.compile(rf"({'|'.join(SPLITS)})(?:[-_.]\d+(?:[-_]of[-_]\d+.*)?)?", re.IGNORECASE)
# One in ten images without a split is for validation, and one for testing.
_DRAWN: Final[tuple[Split, ...]] = ("val", "test", *("train",) * 8)
_GROUP_LENGTH: Final = len("copies-") + 16
_SHOWN: Final = 5


def draw_split(name: str, splits: tuple[Split, ...] = _DRAWN) -> Split:
    """Take a split by a digest: the same for all images of a group, and again at the next import."""
    return splits[hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()[0] % len(splits)]


def split_in(parts: Sequence[str]) -> tuple[Split, int] | None:
    """The split that components of a path name, and the position of the last that does; None if they differ.

    A component is the split's name, such as train, or has a number behind it, as train-00001-of-00004.
    """
    positions = {
        position: SPLITS[part[1].lower()]
        for position, part in enumerate(map(_COMPONENT.fullmatch, parts))
        if part is not None
    }
    return (positions[max(positions)], max(positions)) if len(set(positions.values())) == 1 else None


@dataclass(frozen=True)
class ReplacedManifest:
    """The usable records of a manifest, and their splits by what ties a later record to them."""

    records: Sequence[Record] = ()
    splits: Mapping[tuple[str, str], set[Split]] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the manifest of a folder; there are no records where there is none.

        Raises:
            DataError: It cannot be read.
        """
        path = folder / MANIFEST_NAME
        records: list[Record] = []
        splits: defaultdict[tuple[str, str], set[Split]] = defaultdict(set)
        try:
            lines = path.read_bytes().split(b"\n") if path.exists() else []
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error.strerror or error}.") from error
        for number, line in enumerate(lines, 1):
            # What a broken line was of is not known; indexing has named it.
            with suppress(LineError):
                if line.strip():
                    records.append(parse_line(line, number))
        for record in records:
            for tie in _former_ties(record, record.image if record.sha256 is None else None):
                if record.split is not None:
                    splits[tie].add(record.split)
        return cls(records, splits)

    def splits_of(self, record: Record, path: str) -> set[Split]:
        """Return the splits of a record's file and group, and of its path where no digest is known."""
        return set().union(*(self.splits.get(tie, ()) for tie in _former_ties(record, path)))

    def sentences(self, digests: Mapping[str, str | None]) -> Iterator[str]:
        """Say, by folder, what a new manifest with these digests of images by path no longer has."""
        known = frozenset(digests.values()) - {None}
        gone, moved, changed = list[Record](), 0, 0
        for record in self.records:
            if record.sha256 in known:
                moved += digests.get(record.image) != record.sha256
            elif record.image not in digests:
                gone.append(record)
            else:
                changed += record.sha256 is not None
        parts = [
            f"{count:,} {'has' if count == 1 else 'have'} another {what} now"
            for count, what in ((moved, "path"), (changed, "file"))
            if count
        ]
        if gone:
            before, after = Counter(map(_folder, self.records)), Counter(map(_folder, gone))
            named = [
                f"{'all ' if count == before[folder] else ''}{count:,} in {folder}"
                for folder, count in after.most_common(_SHOWN)
            ]
            more = ", ..." if len(after) > _SHOWN else ""
            verb = "is" if len(gone) == 1 else "are"
            parts.append(f"{len(gone):,} {verb} gone ({', '.join(named)}{more})")
        if parts:
            total = len(self.records)
            yield f"Of the {total:,} images in the manifest that this one replaces, {' and '.join(parts)}."


def _former_ties(record: Record, path: str | None) -> list[tuple[str, str]]:
    """What ties a record to others: its file, its path or its group."""
    ties = (("file", record.sha256), ("path", path), ("group", record.group))
    return [(kind, name) for kind, name in ties if name is not None]


def _folder(record: Record) -> str:
    folder = PurePosixPath(record.image).parent.as_posix()
    return "the folder itself" if folder == "." else f"{folder}/"


def settle(
    records: Sequence[Record],
    notes: list[str],
    *,
    extracted: bool,
    replaced: ReplacedManifest | None = None,
    prefix: str = "",
) -> list[Record]:
    """Join the records of equal files, and give those without a split one.

    Where the paths of all of these have a component such as `train`, they name the splits, and a single
    folder below it is the label of images in it. Records that share a group or a file get one split: the
    first that the data set names, else the one that they have in the manifest that is replaced, else one
    drawn by the group, or by the digest of the file. Named splits stay.

    Each record has the digest of its file. Where files came out of tables or shards (`extracted`), records of
    equal files become one image with all texts, unless their splits or groups differ. The paths of images in
    the manifest that is `replaced` begin with `prefix`. `notes` gets sentences on what was done.
    """
    replaced = replaced or ReplacedManifest()
    records = _split_by_paths(records, notes, extracted=extracted)
    if extracted:
        records = _join_equal_files(records, notes)
    labels: dict[str, str] = {}
    changed = True
    while changed:
        # What is tied together gets the least name of all; those of groups are less than those of files.
        changed = False
        for ties in map(_ties, records):
            least = min(labels.get(tie, tie) for tie in ties)
            changed |= any(labels.get(tie) != least for tie in ties)
            labels.update(dict.fromkeys(ties, least))
    label_of = [labels[_ties(record)[0]] for record in records]
    named: dict[str, Split] = {}
    before: defaultdict[str, set[Split]] = defaultdict(set)
    for record, label in zip(records, label_of, strict=True):
        if record.split is not None:
            named.setdefault(label, record.split)
        before[label] |= replaced.splits_of(record, prefix + record.image)
    # What came to be tied together and had several splits is drawn anew.
    kept = {label: next(iter(splits)) for label, splits in before.items() if len(splits) == 1}
    settled = [
        replace(record, split=record.split or named.get(label) or kept.get(label) or draw_split(label[1:]))
        for record, label in zip(records, label_of, strict=True)
    ]
    return _group_equal_files(settled, notes)


def _ties(record: Record) -> list[str]:
    return [f"1{record.sha256}", *([] if record.group is None else [f"0{record.group}"])]


def _split_by_paths(records: Sequence[Record], notes: list[str], *, extracted: bool) -> Sequence[Record]:
    """Records with the splits that their paths name, if those of all that need one do."""
    paths = {
        number: _components(record, extracted=extracted)
        for number, record in enumerate(records)
        if record.split is None
    }
    named = {number: match for number, path in paths.items() if (match := split_in(path)) is not None}
    if not named:
        return records
    if len(named) < len(paths):
        notes.append(
            f"{len(named):,} of {len(paths):,} images are in folders that name a split, as train/, the "
            "others are not: all splits are drawn."
        )
        return records
    below = {number: tuple(paths[number][position + 1 :]) for number, (_, position) in named.items()}
    labelled = not extracted and all(len(folders) == 1 for folders in below.values())
    counts = Counter(split for split, _ in named.values())
    counted = ", ".join(f"{split} {counts[split]:,}" for split in get_args(Split) if counts[split])
    also = "; the folders below are labels" if labelled else ""
    notes.append(f"Splits are those that folders or files are named for: {counted}{also}.")
    settled = list(records)
    for number, (split, _) in named.items():
        labels = records[number].labels or (below[number] if labelled else ())
        settled[number] = replace(records[number], split=split, labels=labels)
    return settled


def _components(record: Record, *, extracted: bool) -> list[str]:
    """Names of the folders of an image; of a table or a shard with images, its own name as well."""
    *folders, name = (record.table if extracted else record.image).split("/")
    return [*folders, name.partition(".")[0]] if extracted else folders


def _join_equal_files(records: Sequence[Record], notes: list[str]) -> list[Record]:
    """One record for all of one file; its values are those of all of them."""
    alike: defaultdict[tuple[str | None, Split | None, str | None], list[Record]] = defaultdict(list)
    for record in records:
        alike[record.sha256, record.split, record.group].append(record)
    if extra := len(records) - len(alike):
        several = sum(len(same) > 1 for same in alike.values())
        notes.append(
            f"{extra:,} of {len(records):,} records have the same file as another one; {several:,} "
            f"{'image has' if several == 1 else 'images have'} all their texts, labels and metadata."
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


def _group_equal_files(records: list[Record], notes: list[str]) -> list[Record]:
    """Records of equal files as one group, unless they have several groups or splits already."""
    positions: defaultdict[str | None, list[int]] = defaultdict(list)
    for position, record in enumerate(records):
        positions[record.sha256].append(position)
    copies, parted = Examples(), Examples()
    for digest, alike in positions.items():
        # Several records of a table may have one written file; only other splits make it a copy.
        first, *others = {
            (records[position].image, records[position].split): records[position] for position in alike
        }.values()
        for other in others:
            name = other.id if other.image == first.image else other.image
            examples = copies if other.split == first.split else parted
            examples.note(f"{name!r} in {other.split} of {first.image!r} in {first.split}")
        groups = {record.group for record in (first, *others)} - {None}
        if others and len(groups) < 2 and all(other.split == first.split for other in others):
            group = next(iter(groups), f"copies-{digest}"[:_GROUP_LENGTH])
            for position in alike:
                records[position] = replace(records[position], group=group)
    if copies.count:
        notes.append(f"{copies.times('file is a copy of another', 'files are copies of others')}: {copies}.")
    if parted.count:
        verb = parted.times("file is a copy of another", "files are copies of others")
        notes.append(f"{verb} in another split, as the data set names them: {parted}.")
    return records

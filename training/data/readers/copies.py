"""Splits of images, which equal files share, and one image for the equal files of tables and shards."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Final, get_args

from training.data.readers.common.examples import Examples
from training.data.readers.common.splits import draw_split, split_in
from training.data.readers.replaced import NOTHING_REPLACED, ReplacedManifest
from training.data.record import MetadataValue, Record, Scalar, Split

_GROUP_LENGTH: Final = len("copies-") + 16


def settle(
    records: Sequence[Record],
    notes: list[str],
    *,
    extracted: bool,
    replaced: ReplacedManifest = NOTHING_REPLACED,
    prefix: str = "",
) -> list[Record]:
    """Join the records of equal files, and give those without a split one.

    Where the paths of all of these have a component such as `train`, they name the splits, and a single
    folder below it is the label of images in it. Records that share a group or a file get one split: the
    first that the data set names, else the one that they have in the manifest that is replaced, else one
    drawn by the group, or by the digest of the file. Named splits stay.

    Args:
        records: Each with the digest of its file.
        notes: Gets sentences on what was done.
        extracted: Whether the files came out of tables or shards. Records of equal files then become one
            image with all texts, unless their splits or groups differ.
        replaced: The manifest that is replaced.
        prefix: Beginning of the paths of images in it.
    """
    records = _split_by_paths(records, notes, extracted=extracted)
    if extracted:
        records = _joined(records, notes)
    labels: dict[str, str] = {}
    moved = True
    while moved:
        # What is tied together gets the least name of all; those of groups are less than those of files.
        moved = False
        for ties in map(_ties, records):
            least = min(labels.get(tie, tie) for tie in ties)
            moved |= any(labels.get(tie) != least for tie in ties)
            labels.update(dict.fromkeys(ties, least))
    named: dict[str, Split] = {}
    for record in records:
        if record.split is not None:
            named.setdefault(labels[_ties(record)[0]], record.split)
    before: defaultdict[str, set[Split]] = defaultdict(set)
    for record in records:
        before[labels[_ties(record)[0]]] |= replaced.splits_of(record, prefix + record.image)
    # What came to be tied together and had several splits is drawn anew.
    kept = {label: next(iter(splits)) for label, splits in before.items() if len(splits) == 1}
    found = []
    for record in records:
        label = labels[_ties(record)[0]]
        drawn = named.get(label) or kept.get(label) or draw_split(label[1:])
        found.append(replace(record, split=record.split or drawn))
    return _grouped(found, notes)


def _ties(record: Record) -> list[str]:
    return [f"1{record.sha256}", *([] if record.group is None else [f"0{record.group}"])]


def _split_by_paths(records: Sequence[Record], notes: list[str], *, extracted: bool) -> Sequence[Record]:
    """Records with the splits that their paths name, if those of all that need one do."""
    paths = {
        number: _components(record, extracted=extracted)
        for number, record in enumerate(records)
        if record.split is None
    }
    named = {number: found for number, path in paths.items() if (found := split_in(path)) is not None}
    if not named or len(named) < len(paths):
        if named:
            notes.append(
                f"{len(named):,} of {len(paths):,} images are in places that name a split, as train/, the "
                "others are not: all splits are drawn."
            )
        return records
    below = {number: tuple(paths[number][place + 1 :]) for number, (_, place) in named.items()}
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


def _joined(records: Sequence[Record], notes: list[str]) -> list[Record]:
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


def _grouped(records: list[Record], notes: list[str]) -> list[Record]:
    """Records of equal files as one group, unless they have several groups or splits already."""
    places: defaultdict[str | None, list[int]] = defaultdict(list)
    for place, record in enumerate(records):
        places[record.sha256].append(place)
    copies, parted = Examples(), Examples()
    for digest, alike in places.items():
        # Several records of a table may have one written file; only other splits make it a copy.
        first, *others = {
            (records[place].image, records[place].split): records[place] for place in alike
        }.values()
        for other in others:
            examples = copies if other.split == first.split else parted
            name = other.id if other.image == first.image else other.image
            words = f"{name!r} in {other.split} of {first.image!r} in {first.split}"
            examples.add_words(partial(str, words), other.line)
        groups = {record.group for record in (first, *others)} - {None}
        if others and len(groups) < 2 and all(other.split == first.split for other in others):
            for place in alike:
                group = next(iter(groups), f"copies-{digest}"[:_GROUP_LENGTH])
                records[place] = replace(records[place], group=group)
    if copies.count:
        notes.append(f"{copies.times('file is a copy of another', 'files are copies of others')}: {copies}.")
    if parted.count:
        verb = parted.times("file is a copy of another", "files are copies of others")
        notes.append(f"{verb} in another split, as the data set names them: {parted}.")
    return records

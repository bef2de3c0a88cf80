"""The manifest that an import replaces: the splits of its images are kept, and what is gone of it is said."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final, Self

from training.data.manifest import MANIFEST_NAME
from training.data.record import LineError, Record, Split, parse_line
from training.errors import DataError

_SHOWN: Final = 5
# Where ties bring images of several splits together, what was trained on stays in the training.
_ORDER: Final[tuple[Split, ...]] = ("train", "val", "test")


@dataclass(frozen=True)
class ReplacedManifest:
    """The usable records of a manifest, and their splits by what ties a later record to them."""

    records: Sequence[Record]
    splits: Mapping[str, Split]

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the manifest of a folder; there are no records where there is none.

        Raises:
            DataError: It cannot be read.
        """
        path = folder / MANIFEST_NAME
        try:
            lines = path.read_bytes().split(b"\n")
        except FileNotFoundError:
            lines = []
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error.strerror or error}.") from error
        records = list(_usable(lines))
        splits: dict[str, Split] = {}
        for record in records:
            for tie in ties(record, record.image if record.sha256 is None else None):
                splits[tie] = first_split(record.split, splits.get(tie))
        return cls(records, splits)

    def sentences(self, paths: Mapping[str, str | None]) -> Iterator[str]:
        """Say what a new manifest has no more, by folder.

        Args:
            paths: Digest of each image of the new one, by its path.
        """
        digests = frozenset(paths.values()) - {None}
        others = [record for record in self.records if record.image not in paths]
        gone = [record for record in others if record.sha256 not in digests]
        moved = len(others) - len(gone)
        if not others:
            return
        before, after = Counter(map(_folder, self.records)), Counter(map(_folder, gone))
        named = [
            f"{'all ' if count == before[folder] else ''}{count:,} in {folder}"
            for folder, count in after.most_common(_SHOWN)
        ]
        more = ", ..." if len(after) > _SHOWN else ""
        parts = [f"{moved:,} have another path now"] if moved else []
        parts += [f"{len(gone):,} are gone ({', '.join(named)}{more})"] if gone else []
        total = len(self.records)
        yield f"Of the {total:,} images in the manifest that this one replaces, {' and '.join(parts)}."


def ties(record: Record, path: str | None = None) -> list[str]:
    """Return what ties a record to others: its file or else its path, and its group."""
    own = [] if record.sha256 is None else [f"file {record.sha256}"]
    placed = [] if path is None else [f"path {path}"]
    return [*own, *placed, *([] if record.group is None else [f"group {record.group}"])]


def first_split(split: Split, other: Split | None) -> Split:
    """Return the one of two splits that images of both belong to."""
    return split if other is None else min(split, other, key=_ORDER.index)


def _usable(lines: Sequence[bytes]) -> Iterator[Record]:
    for number, line in enumerate(lines, 1):
        try:
            if line.strip():
                yield parse_line(line, number)
        except LineError:
            # What it was of is not known; indexing has named it.
            continue


def _folder(record: Record) -> str:
    folder = PurePosixPath(record.image).parent.as_posix()
    return "the folder itself" if folder == "." else f"{folder}/"

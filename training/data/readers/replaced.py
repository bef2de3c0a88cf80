"""The manifest that an import replaces: the splits of its images are kept, and what is gone of it is said."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final, Self

from training.data.manifest import MANIFEST_NAME
from training.data.record import LineError, Record, Split, parse_line
from training.errors import DataError

_SHOWN: Final = 5


@dataclass(frozen=True)
class ReplacedManifest:
    """The usable records of a manifest, and their splits by what ties a later record to them."""

    records: Sequence[Record]
    splits: Mapping[str, set[Split]]

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
        splits: defaultdict[str, set[Split]] = defaultdict(set)
        for record in records:
            for tie in _ties(record, record.image if record.sha256 is None else None):
                if record.split is not None:
                    splits[tie].add(record.split)
        return cls(records, splits)

    def splits_of(self, record: Record, path: str) -> set[Split]:
        """Return the splits of a record's file and group, and of its path where no digest is known."""
        return set().union(*(self.splits.get(tie, ()) for tie in _ties(record, path)))

    def sentences(self, paths: Mapping[str, str | None]) -> Iterator[str]:
        """Say what a new manifest has no more, by folder.

        Args:
            paths: Digest of each image of the new one, by its path.
        """
        digests = frozenset(paths.values()) - {None}
        gone, moved, changed = list[Record](), 0, 0
        for record in self.records:
            if record.sha256 in digests:
                moved += paths.get(record.image) != record.sha256
            elif record.image not in paths:
                gone.append(record)
            else:
                changed += record.sha256 is not None
        if not (gone or moved or changed):
            return
        before, after = Counter(map(_folder, self.records)), Counter(map(_folder, gone))
        named = [
            f"{'all ' if count == before[folder] else ''}{count:,} in {folder}"
            for folder, count in after.most_common(_SHOWN)
        ]
        more = ", ..." if len(after) > _SHOWN else ""
        parts = [
            f"{count:,} {'has' if count == 1 else 'have'} another {what} now"
            for count, what in ((moved, "path"), (changed, "file"))
            if count
        ]
        if gone:
            verb = "is" if len(gone) == 1 else "are"
            parts.append(f"{len(gone):,} {verb} gone ({', '.join(named)}{more})")
        total = len(self.records)
        yield f"Of the {total:,} images in the manifest that this one replaces, {' and '.join(parts)}."


def _ties(record: Record, path: str | None) -> list[str]:
    """What ties a record to others: its file, its path or its group."""
    named = (("file", record.sha256), ("path", path), ("group", record.group))
    return [f"{kind} {name}" for kind, name in named if name is not None]


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


NOTHING_REPLACED: Final = ReplacedManifest((), {})

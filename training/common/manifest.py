"""The manifest: one JSON object a line that names an image, its texts, its split and what is known of it."""

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from training.common.atomic import atomic_file
from training.common.errors import DataError
from training.common.record import LineError, MetadataValue, Record, Scalar, Split, format_line, parse_line
from training.common.rejections import Rejection, Rejections

__all__ = [
    "MANIFEST_NAME", "Manifest", "MetadataValue", "Record", "Rejection", "Rejections", "Scalar", "Split",
    "read_manifest", "write_manifest",
]  # fmt: skip

MANIFEST_NAME: Final = "manifest.jsonl"


@dataclass(frozen=True)
class ManifestLines:
    """All lines of a manifest's file, whichever of them are used.

    Attributes:
        ids: Ids that they give, also those of lines that cannot be used.
        unusable: Ids that only lines which cannot be used give.
        unnamed: Number of lines without an id that can be read.
    """

    count: int = 0
    ids: frozenset[str] = frozenset()
    unusable: frozenset[str] = frozenset()
    unnamed: int = 0


@dataclass(frozen=True)
class Manifest:
    """The usable records of a manifest, in the file's order, and what had to be left out."""

    folder: Path
    records: tuple[Record, ...]
    rejections: Rejections
    lines: ManifestLines = field(default_factory=ManifestLines, compare=False)

    def split(self, name: Split) -> "Manifest":
        """The same manifest with the records of one split only."""
        return replace(self, records=tuple(record for record in self.records if record.split == name))

    def image_path(self, record: Record) -> Path:
        """Path of a record's image."""
        return self.folder / record.image

    def audio_path(self, record: Record) -> Path | None:
        """Path of a record's sound; None if it has none."""
        return None if record.audio is None else self.folder / record.audio


def read_manifest(folder: Path | str, *, max_rejected: float = 1.0) -> Manifest:
    """Read `manifest.jsonl` in `folder` and check that every image and sound is there.

    A line is left out, and named in `rejections`, when it is not a JSON object with known keys and values of
    the right kind, repeats an id, puts a group into a second split, or names an image or a sound that is
    missing or outside the folder. Empty lines are passed over. Links in the folder are followed.

    Raises:
        DataError: There is no manifest, no line of it can be used, or more than the share `max_rejected`
            cannot.
    """
    folder = Path(folder)
    path = folder / MANIFEST_NAME
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise DataError(f"There is no {MANIFEST_NAME} in {folder}; give the folder that holds one.") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from error
    lines = [(number, line) for number, line in enumerate(content.split(b"\n"), 1) if line.strip()]
    if not lines:
        raise DataError(f"{path} is empty; it needs one JSON object a line.")
    rejections = Rejections(total=len(lines), max_share=max_rejected, source=str(path))
    known, records, unusable = _KnownLines(), [], []
    for number, line in lines:
        try:
            record = parse_line(line, number)
            if not _is_file(f"{folder}/{record.image}"):
                raise LineError(f"there is no image {record.image!r}")
            if record.audio is not None and not _is_file(f"{folder}/{record.audio}"):
                raise LineError(f"there is no audio file {record.audio!r}")
            known.add(record)
        except LineError as error:
            rejections.add(number, str(error))
            unusable.append(_id_of(line))
        else:
            records.append(record)
    if not records:
        raise rejections.error(f"No line of {path} can be used: mend them, or import the data again.")
    usable = frozenset(record.id for record in records)
    others = frozenset(filter(None, unusable)) - usable
    counted = ManifestLines(len(lines), usable | others, others, unusable.count(None))
    return Manifest(folder, tuple(records), rejections, counted)


def write_manifest(folder: Path, records: Iterable[Record], *, rejections: Rejections | None = None) -> int:
    """Write `manifest.jsonl` into `folder`, whole or not at all, and count its lines.

    Records that could not be read again, such as one with a repeated id, are added to `rejections`.

    Raises:
        DataError: There are such records, and no `rejections`.
    """
    known, written = _KnownLines(), 0
    with atomic_file(folder / MANIFEST_NAME) as file:
        for number, record in enumerate(records, 1):
            numbered = record if rejections is not None else replace(record, line=number)
            try:
                line = format_line(numbered)
                known.add(numbered)
            except LineError as error:
                if rejections is None:
                    raise DataError(f"Line {number} of the manifest cannot be written: {error}.") from error
                rejections.add(record.line, str(error), record.table, record.rows)
            else:
                file.write(line)
                written += 1
    return written


def _id_of(line: bytes) -> str | None:
    """The id that an unusable line gives; None where none can be read."""
    try:
        known = json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return None
    name = known.get("id") if isinstance(known, dict) else None
    return name if isinstance(name, str) and name else None


def _is_file(path: str) -> bool:
    # Not Path.is_file: it costs as much as all the parsing.
    return os.path.isfile(path)  # noqa: PTH113


class _KnownLines:
    """Rules between the lines of one manifest."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._groups: dict[str, tuple[Split | None, int]] = {}

    def add(self, record: Record) -> None:
        if record.id in self._ids:
            raise LineError(f"the id {record.id!r} is on line {self._ids[record.id]} already")
        if record.group is not None:
            split, line = self._groups.setdefault(record.group, (record.split, record.line))
            if split != record.split:
                raise LineError(
                    f"the group {record.group!r} is in {split!r} since line {line} "
                    f"and cannot also be in {record.split!r}"
                )
        self._ids[record.id] = record.line

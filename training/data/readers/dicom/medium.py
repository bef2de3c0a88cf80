"""The directory of a DICOM medium: the files that its records name (PS3.10, chapter 8; PS3.3, annex F)."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydicom import Dataset, dcmread

from training.data.decoding.dicom.file import open_file
from training.data.dicom.elements import UNREADABLE, items_of, values_of
from training.data.dicom.silence import silence_pydicom
from training.errors import ImageError

DIRECTORY_NAME: Final = "DICOMDIR"
_MOST_BYTES: Final = 1 << 30
_MOST_PARTS: Final = 8
_FIRST: Final = "OffsetOfTheFirstDirectoryRecordOfTheRootDirectoryEntity"
_NEXT: Final = "OffsetOfTheNextDirectoryRecord"
_BELOW: Final = "OffsetOfReferencedLowerLevelDirectoryEntity"
_INACTIVE: Final = 0
_ENDINGS: Final = (".DCM", ".DICOM", ".DIC", ".IMA")


@dataclass(frozen=True)
class Directory:
    """The files that a directory names.

    Attributes:
        files: Parts of the path of each, in the order of the records.
        notes: Sentences on links between records that lead nowhere or in circles.
    """

    files: Sequence[tuple[str, ...]]
    notes: Sequence[str]


def read_directory(content: bytes) -> Directory:
    """Read a DICOMDIR.

    All records count that name a file and are in use, whether a link leads to them or not.

    Raises:
        ImageError: It is damaged, or no DICOMDIR.
    """
    silence_pydicom()
    open_file(content, _MOST_BYTES)
    try:
        directory = dcmread(io.BytesIO(content), force=True)
        records = {_offset_of(item): item for item in items_of(directory, "DirectoryRecordSequence")}
        if not records:
            raise ImageError("it has no records")
        in_use = [record for record in records.values() if _number(record, "RecordInUseFlag") != _INACTIVE]
        named = (tuple(values_of(record, "ReferencedFileID")) for record in in_use)
        return Directory(list(dict.fromkeys(filter(None, named))), list(_follow(directory, records)))
    except UNREADABLE:
        raise ImageError("it is damaged") from None


def _follow(directory: Dataset, records: dict[int, Dataset]) -> list[str]:
    """Follow the links between records, each once; name those that lead in circles or nowhere."""
    seen: set[int] = set()
    circles = nowhere = 0
    waiting = [_number(directory, _FIRST)]
    while waiting:
        offset = waiting.pop()
        if not offset:
            continue
        if offset in seen:
            circles += 1
        elif offset not in records:
            nowhere += 1
        else:
            seen.add(offset)
            waiting += [_number(records[offset], _NEXT), _number(records[offset], _BELOW)]
    counted = (
        (circles, "Links of the DICOMDIR that lead to a record a second time"),
        (nowhere, "Links of the DICOMDIR that lead to no record"),
        (len(records) - len(seen), "Records of the DICOMDIR that no link reaches"),
    )
    return [
        f"{what}: {count:,}; all its records are read in their order." for count, what in counted if count
    ]


def _offset_of(item: Dataset) -> int:
    # The offset is that of the item's own tag.
    return int(item.seq_item_tell or 0)


def _number(dataset: Dataset, keyword: str) -> int:
    value = dataset.get(keyword)
    return value if isinstance(value, int) else -1 if keyword == "RecordInUseFlag" else 0


class NamedFiles:
    """Files below a folder by the names that a directory has, whatever a system made of their letters."""

    def __init__(self, folder: Path) -> None:
        self._root = folder
        self._folders: dict[Path, dict[str, Path]] = {}

    def find(self, parts: Sequence[str]) -> Path | None:
        """Return a file inside the folder; None where there is none."""
        path = self._root
        if not 0 < len(parts) <= _MOST_PARTS:
            return None
        for place, part in enumerate(parts, 1):
            # The names come from the folder itself, so no part leads out of it.
            names, name = self._below(path), _plain(part)
            below = names.get(name)
            if below is None and place == len(parts):
                # Programs that copy media add an ending.
                below = next((names[name + end] for end in _ENDINGS if name + end in names), None)
            if below is None or below.is_symlink():
                return None
            path = below
        return path if path.is_file() else None

    def _below(self, folder: Path) -> dict[str, Path]:
        if folder not in self._folders:
            try:
                self._folders[folder] = {_plain(path.name): path for path in folder.iterdir()}
            except OSError:
                self._folders[folder] = {}
        return self._folders[folder]


def _plain(name: str) -> str:
    """Fold case, and leave out the version of ISO 9660 and the dot of a missing ending."""
    return name.partition(";")[0].rstrip(".").upper()

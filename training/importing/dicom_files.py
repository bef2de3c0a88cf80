"""The DICOM files of a source: a file, a folder, a zip archive, or a medium.

The DICOMDIR of a medium names its files (PS3.10, chapter 8; PS3.3, annex F).
"""

import io
import itertools
import lzma
import os
import stat
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Final

from pydicom import dcmread

from training.clinical.dicom.attributes import UNREADABLE, items_of, silence_pydicom, values_of
from training.common.errors import DataError, ImageError
from training.common.rejections import Rejection
from training.imaging.dicom.elements import open_file
from training.imaging.formats import SIGNATURE_BYTES, is_dicom

_MOST_FILES: Final = 2_000_000
_DIRECTORY_BYTES: Final = 256 << 20
_INFLATED_BYTES: Final = 1 << 30
# An archive of films inflates to a few times its size.
_LARGEST_RATIO: Final = 200
_SMALL_ARCHIVE: Final = 1 << 30
_DIRECTORY_NAME: Final = "DICOMDIR"
_MOST_PARTS: Final = 8
_ENDINGS: Final = (".DCM", ".DICOM", ".DIC", ".IMA")


@dataclass(frozen=True, slots=True)
class Place:
    """A file of a source.

    Attributes:
        number: Its number in the order of the source, from 1.
        path: The file, or the archive that has it.
        member: Number of the archive's member, from 0; None for a file of its own.
    """

    number: int
    path: Path
    member: int | None = None


@dataclass(frozen=True)
class SourceFiles:
    """The files of a source.

    Attributes:
        places: The files, in order.
        order: How they are numbered, for messages.
        refused: Files that are named and not there.
        left_out: Number of files that are passed over, for each reason.
    """

    places: Sequence[Place]
    order: str
    refused: Sequence[Rejection] = ()
    left_out: Mapping[str, int] = field(default_factory=dict)


def find_places(source: Path) -> SourceFiles:
    """List the files of a source; no content but that of a DICOMDIR is read.

    Raises:
        DataError: It is not there, cannot be read, or is an archive over the limits.
    """
    try:
        if source.is_dir():
            entries = sorted(source.iterdir())
            directory = next((path for path in entries if path.name.upper() == _DIRECTORY_NAME), None)
            return _in_folder(source) if directory is None else _on_medium(directory)
        if not source.is_file():
            raise DataError("The source of the import is not there; give a file, a folder or a zip archive.")
        if source.name.upper() == _DIRECTORY_NAME:
            return _on_medium(source)
        with source.open("rb") as file:
            is_archive = zipfile.is_zipfile(source) and not is_dicom(file.read(SIGNATURE_BYTES))
        return _in_archive(source) if is_archive else SourceFiles([Place(1, source)], "1 is the source")
    except OSError as error:
        raise DataError(f"The source of the import cannot be read: {error.strerror}.") from None


def read_place(place: Place, max_bytes: int) -> bytes:
    """Return the bytes of a file, at most one more than the limit.

    Raises:
        ImageError: It cannot be read; its name is not said.
    """
    try:
        if place.member is None:
            with place.path.open("rb") as file:
                return file.read(max_bytes + 1)
        archive = _opened(place.path)
        info = archive.infolist()[place.member]
        if info.flag_bits & 1:
            raise ImageError("it is encrypted; unpack the archive with its password first")
        with archive.open(info) as member:
            return member.read(max_bytes + 1)
    except OSError as error:
        raise ImageError(f"it cannot be read: {error.strerror or 'the archive is damaged'}") from None
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError, RuntimeError):
        raise ImageError(
            "it cannot be read: the archive is damaged, or compressed in an unknown way"
        ) from None


@lru_cache(maxsize=1)
def _opened(path: Path) -> zipfile.ZipFile:
    """Open an archive once in a process: its directory may have a million members."""
    return zipfile.ZipFile(path)


def _files_in(folder: Path) -> Iterator[bytes]:
    for place, _, names in os.walk(os.fsencode(folder)):
        for name in names:
            path = os.path.join(place, name)  # noqa: PTH118 - names may be in any encoding
            with suppress(OSError):
                if stat.S_ISREG(os.lstat(path).st_mode):
                    yield path


def _in_folder(folder: Path) -> SourceFiles:
    paths = sorted(itertools.islice(_files_in(folder), _MOST_FILES + 1))
    if len(paths) > _MOST_FILES:
        raise DataError(f"The folder has over {_MOST_FILES:,} files: import its folders one by one.")
    places = [Place(number, Path(os.fsdecode(path))) for number, path in enumerate(paths, 1)]
    return SourceFiles(places, "find SOURCE -type f | LC_ALL=C sort")


def _in_archive(path: Path) -> SourceFiles:
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError):
        raise DataError("The zip archive is damaged; fetch it again.") from None
    if len(members) > _MOST_FILES:
        raise DataError(f"The zip archive has over {_MOST_FILES:,} files: unpack it, and import the folders.")
    inflated, size = sum(member.file_size for member in members), path.stat().st_size
    if inflated > max(_SMALL_ARCHIVE, _LARGEST_RATIO * size):
        raise DataError(
            f"The zip archive of {size / 1e6:,.1f} MB says that it holds {inflated / 1e9:,.1f} GB: unpack it "
            "yourself, and import the folder."
        )
    # Members are read one by one and never unpacked, so it does not matter where their names lead.
    numbers = [number for number, member in enumerate(members) if not member.is_dir()]
    places = [Place(order, path, number) for order, number in enumerate(numbers, 1)]
    return SourceFiles(places, "zipinfo -1 SOURCE | grep -v '/$'")


def _on_medium(directory: Path) -> SourceFiles:
    try:
        with directory.open("rb") as file:
            named = _read_directory(file.read(_DIRECTORY_BYTES + 1))
    except OSError as error:
        raise DataError(f"The DICOMDIR cannot be read: {error.strerror}.") from None
    except ImageError as error:
        raise DataError(
            f"The DICOMDIR cannot be followed: {error}. Copy the medium without it, and import the folder."
        ) from None
    files = NamedFiles(directory.parent)
    places, refused = [], []
    for number, parts in enumerate(named, 1):
        path = files.find(parts)
        if path is None:
            refused.append(Rejection(number, "the DICOMDIR names it, and it is not on the medium"))
        else:
            places.append(Place(number, path))
    known = {place.path for place in places} | {directory}
    others = sum(Path(os.fsdecode(path)) not in known for path in _files_in(directory.parent))
    left_out = {"files that the DICOMDIR does not name": others} if others else {}
    return SourceFiles(places, "the files in the DICOMDIR's order", refused, left_out)


def _read_directory(content: bytes) -> Sequence[tuple[str, ...]]:
    """The parts of the paths that a DICOMDIR's records in use name, whether a link leads to them or not."""
    if len(content) > _DIRECTORY_BYTES:
        raise ImageError("it is too large")
    silence_pydicom()
    open_file(content, _INFLATED_BYTES)
    try:
        records = list(items_of(dcmread(io.BytesIO(content), force=True), "DirectoryRecordSequence"))
        if not records:
            raise ImageError("it has no records")
        # 0 is a record that is not in use.
        in_use = [record for record in records if record.get("RecordInUseFlag") != 0]
        named = (tuple(values_of(record, "ReferencedFileID")) for record in in_use)
        return list(dict.fromkeys(filter(None, named)))
    except UNREADABLE:
        raise ImageError("it is damaged") from None


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
        for depth, part in enumerate(parts, 1):
            # The names come from the folder itself, so no part leads out of it.
            names, name = self._below(path), _plain(part)
            below = names.get(name)
            if below is None and depth == len(parts):
                # Programs that copy media add an ending.
                below = next((names[name + end] for end in _ENDINGS if name + end in names), None)
            if below is None or below.is_symlink():
                return None
            path = below
        return path if path.is_file() else None

    def _below(self, folder: Path) -> dict[str, Path]:
        if folder not in self._folders:
            self._folders[folder] = {}
            with suppress(OSError):
                self._folders[folder] = {_plain(path.name): path for path in folder.iterdir()}
        return self._folders[folder]


def _plain(name: str) -> str:
    """Fold case, and leave out the version of ISO 9660 and the dot of a missing ending."""
    return name.partition(";")[0].rstrip(".").upper()

"""Films from DICOM files: de-identified copies, and the quarantine; names of files are kept nowhere.

A source is a file, a folder, a zip archive, or a medium, whose DICOMDIR names its files (PS3.10, chapter 8;
PS3.3, annex F).

Run as a module it is a process that examines files: one that a file ends, or that takes too long, costs that
file alone.
"""

import csv
import hashlib
import io
import itertools
import lzma
import os
import stat
import sys
import zipfile
import zlib
from collections import Counter, defaultdict, deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from pydicom import dcmread

from training.clinical.dicom.attributes import (
    MODALITIES,
    UNREADABLE,
    items_of,
    read_attributes,
    silence_pydicom,
    uid_of,
    values_of,
)
from training.clinical.dicom.films import group_of, look_at, with_uid, write_films
from training.clinical.dicom.objects import DIRECTORY, kind_of, read_object
from training.common.atomic import atomic_file
from training.common.errors import DataError, ImageError
from training.common.record import MetadataValue, Record
from training.common.rejections import LeftOut, Rejection
from training.imaging.dicom.elements import open_file
from training.imaging.dicom.picture import open_dicom
from training.imaging.formats import SIGNATURE_BYTES, is_dicom
from training.imaging.images import ImageLimits
from training.imaging.processes.pool import (
    Answer,
    DecodingPool,
    DecodingTimeoutError,
    PoolLimits,
    Priority,
    Task,
)
from training.imaging.processes.worker import TaskAnswer, serve
from training.importing.layouts import Layout, Source
from training.importing.listing import Listing

QUARANTINE_NAME: Final = "quarantine.csv"
# A run of fluoroscopy has more; the first ones show what it is of.
MOST_FRAMES: Final = 100
_FOLDER: Final = "images"
_COLUMNS: Final = ("sop", "reason")
_SHOWN: Final = 8
# Names in a source may be those of patients.
_SOURCE: Final = Path("SOURCE")
# 50 megapixels of 16 bits take 650 MB; colours, and the scans of one after the other, up to 1.2 GB. Code has
# address space as well.
MEMORY_BYTES: Final = 1_300_000_000
# JPEG 2000 takes 7 for 50 megapixels, so 60 for a run of 100 frames with 4 each.
_CPU_S: Final = 120
# From the time when a file is handed over; reading from a slow medium counts as well.
_DEADLINE_S: Final = 900.0
# Files of each process that may wait for it, or for one ahead of them.
_WAITING: Final = 4
_ANSWER_BYTES: Final = 1 << 24

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
class SourceFile:
    """A file of a source.

    Attributes:
        number: Its number in the order of the source, from 1.
        member: Number of the archive's member, from 0; None for a file of its own.
    """

    number: int
    path: Path
    member: int | None = None


@dataclass(frozen=True)
class SourceFiles:
    """The files of a source.

    Attributes:
        refused: Files that are named and not there.
        left_out: Number of files that are passed over, for each reason.
    """

    files: Sequence[SourceFile]
    order: str
    refused: Sequence[Rejection] = ()
    left_out: Mapping[str, int] = field(default_factory=dict)


def find_source_files(source: Path) -> SourceFiles:
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
        return _in_archive(source) if is_archive else SourceFiles([SourceFile(1, source)], "1 is the source")
    except OSError as error:
        raise DataError(f"The source of the import cannot be read: {error.strerror}.") from None


def read_source_file(file: SourceFile, max_bytes: int) -> bytes:
    """Return the bytes of a file, at most one more than the limit.

    Raises:
        ImageError: It cannot be read; its name is not said.
    """
    try:
        if file.member is None:
            with file.path.open("rb") as opened:
                return opened.read(max_bytes + 1)
        archive = _opened(file.path)
        info = archive.infolist()[file.member]
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
    for parent, _, names in os.walk(os.fsencode(folder)):
        for name in names:
            path = os.path.join(parent, name)  # noqa: PTH118 - names may be in any encoding
            with suppress(OSError):
                if stat.S_ISREG(os.lstat(path).st_mode):
                    yield path


def _in_folder(folder: Path) -> SourceFiles:
    paths = sorted(itertools.islice(_files_in(folder), _MOST_FILES + 1))
    if len(paths) > _MOST_FILES:
        raise DataError(f"The folder has over {_MOST_FILES:,} files: import its folders one by one.")
    files = [SourceFile(number, Path(os.fsdecode(path))) for number, path in enumerate(paths, 1)]
    return SourceFiles(files, "find SOURCE -type f | LC_ALL=C sort")


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
    files = [SourceFile(order, path, number) for order, number in enumerate(numbers, 1)]
    return SourceFiles(files, "zipinfo -1 SOURCE | grep -v '/$'")


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
    files, refused = [], []
    listed: dict[Path, dict[str, Path]] = {}
    for number, parts in enumerate(named, 1):
        path = _find_named(directory.parent, parts, listed)
        if path is None:
            refused.append(Rejection(number, "the DICOMDIR names it, and it is not on the medium"))
        else:
            files.append(SourceFile(number, path))
    known = {file.path for file in files} | {directory}
    others = sum(Path(os.fsdecode(path)) not in known for path in _files_in(directory.parent))
    left_out = {"files that the DICOMDIR does not name": others} if others else {}
    return SourceFiles(files, "the files in the DICOMDIR's order", refused, left_out)


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


def _find_named(folder: Path, parts: Sequence[str], listed: dict[Path, dict[str, Path]]) -> Path | None:
    """A file below a folder by its name in a DICOMDIR, whatever a system made of the letters.

    Folders that were listed before are in `listed`.
    """
    if not 0 < len(parts) <= _MOST_PARTS:
        return None
    path = folder
    for depth, part in enumerate(parts, 1):
        # The names come from the folder itself, so no part leads out of it.
        if path not in listed:
            listed[path] = {}
            with suppress(OSError):
                listed[path] = {_plain(below.name): below for below in path.iterdir()}
        # Programs that copy media add an ending.
        endings = ("", *_ENDINGS) if depth == len(parts) else ("",)
        names = (_plain(part) + ending for ending in endings)
        below = next((listed[path][name] for name in names if name in listed[path]), None)
        if below is None or below.is_symlink():
            return None
        path = below
    return path if path.is_file() else None


def _plain(name: str) -> str:
    """Fold case, and leave out the version of ISO 9660 and the dot of a missing ending."""
    return name.partition(";")[0].rstrip(".").upper()


@dataclass(frozen=True)
class Examined:
    """Outcome of a file.

    Attributes:
        refused, left_out, quarantined: Why the file cannot be used, is passed over, or needs a person to look
            at it first; "" for the others.
        group: Pseudonym of the patient, or of the study where no patient is named.
        films: Names of the films, one a frame; new films are written aside.
        aside: The file that holds a new film until it is taken, by name.
        unfit: Number of new films whose window or table shows nothing of the picture.
    """

    number: int
    refused: str = ""
    left_out: str = ""
    quarantined: str = ""
    metadata: Mapping[str, MetadataValue] = field(default_factory=dict)
    group: str = ""
    films: Sequence[str] = ()
    aside: Mapping[str, str] = field(default_factory=dict)
    digest: str = ""
    frames_left_out: int = 0
    without_uid: bool = False
    unfit: int = 0

    @property
    def sop(self) -> str:
        """SOP Instance UID; "" where it is not known."""
        return str(self.metadata.get("sop", ""))


def examine(file: SourceFile, source: Source) -> Examined:
    """Read a file and write its films aside; no error has a word of the file.

    Raises:
        DataError: The films cannot be written.
    """
    try:
        return _examine(file, source)
    except ImageError as error:
        return Examined(file.number, refused=str(error).rstrip("."))
    except UNREADABLE:
        return Examined(file.number, refused="it is damaged: its attributes cannot be read")


def _examine(file: SourceFile, source: Source) -> Examined:
    folder, most = source.folder / _FOLDER, source.limits.max_dicom_bytes
    content = read_source_file(file, most)
    if not is_dicom(content):
        return Examined(file.number, left_out="files that are not DICOM")
    if len(content) > most:
        raise ImageError(
            f"it has over {most / 1e6:,.0f} MB, the limit of a DICOM file (RECOQUEST_MAX_IMAGE_BYTES)"
        )
    dataset = read_object(content, most)
    if uid_of(dataset.file_meta, "MediaStorageSOPClassUID") == DIRECTORY:
        return Examined(file.number, left_out="directories of media")
    kind = kind_of(dataset, _modalities(source))
    if kind.left_out:
        return Examined(file.number, left_out=kind.left_out)
    stated = read_attributes(dataset, key=source.key, keep_dates=source.keep_dates)
    metadata = with_uid(stated, content)
    sop = str(metadata["sop"])
    looked_at = source.take_quarantined is not None and sop in _read_uids(source.take_quarantined)
    if kind.quarantined and not looked_at:
        return Examined(file.number, quarantined=kind.quarantined, metadata=metadata)
    image = open_dicom(content, most, source.limits.max_pixels)
    frames = image.attributes.frames
    films, aside, digest, unfit = [], dict[str, str](), hashlib.sha256(), 0
    sop_class = uid_of(dataset, "SOPClassUID")
    for frame, film in enumerate(write_films(image, metadata, sop_class, MOST_FRAMES, looked_at=looked_at)):
        name = f"{sop}.{frame + 1}.dcm" if frames > 1 else f"{sop}.dcm"
        films.append(name)
        digest.update(film)
        path = folder / name
        with _writing():
            # An earlier run has looked for text on it.
            if path.is_file() and path.stat().st_size == len(film) and path.read_bytes() == film:
                continue
        text, is_unfit = look_at(film, source.limits)
        unfit += is_unfit
        with _writing():
            if text and not looked_at:
                for part in aside.values():
                    (folder / part).unlink(missing_ok=True)
                return Examined(file.number, quarantined=f"text {text}", metadata=metadata)
            aside[name] = f".{file.number}.{frame}.part"
            (folder / aside[name]).write_bytes(film)
    return Examined(
        file.number,
        metadata=metadata,
        group=group_of(metadata, source.key),
        films=films,
        aside=aside,
        digest=digest.hexdigest(),
        frames_left_out=max(0, frames - MOST_FRAMES),
        without_uid="sop" not in stated,
        unfit=unfit,
    )


@contextmanager
def _writing() -> Iterator[None]:
    """Tell a folder of films that fails from a file that does."""
    try:
        yield
    except OSError as error:
        raise DataError(f"The films cannot be written: {error.strerror or error}.") from None


def examine_all(files: Sequence[SourceFile], source: Source) -> Generator[Examined, None, None]:
    """Examine files in processes, and give the outcomes in order; closed, it ends them.

    Raises:
        DataError: The films cannot be written.
        DecoderStartError: No process can be started.
    """
    count = max(1, min(len(os.sched_getaffinity(0)), len(files)))
    memory = MEMORY_BYTES * max(1, -(-source.limits.max_pixels // ImageLimits.max_pixels))
    limits = PoolLimits(__name__, count, _WAITING * count, _DEADLINE_S, memory, _CPU_S)
    looked_at = source.take_quarantined
    header = {
        "task": "examine",
        "out": str(source.folder.absolute()),
        "modality": sorted(_modalities(source)),
        "take_quarantined": looked_at and str(looked_at.absolute()),
        "key": source.key.hex(),
        "keep_dates": source.keep_dates,
        "limits": asdict(source.limits),
    }
    waiting = deque[tuple[SourceFile, Future[Answer]]]()
    with closing(DecodingPool(limits)) as pool:
        for file in files:
            task = Task(
                {**header, "file": [file.number, str(file.path.absolute()), file.member]}, _ANSWER_BYTES
            )
            waiting.append((file, pool.submit(task, Priority.UPLOAD)))
            while waiting and (waiting[0][1].done() or len(waiting) == _WAITING * count):
                yield _outcome_of(*waiting.popleft())
        while waiting:
            yield _outcome_of(*waiting.popleft())


def _outcome_of(file: SourceFile, answer: Future[Answer]) -> Examined:
    try:
        header = answer.result().header
    except (ImageError, DecodingTimeoutError) as error:
        return Examined(file.number, refused=str(error).rstrip("."))
    if "failed" in header:
        raise DataError(header["failed"])
    known = header["examined"]
    # JSON has no tuples.
    metadata = {
        name: tuple(value) if isinstance(value, list) else value for name, value in known["metadata"].items()
    }
    return Examined(**{**known, "metadata": metadata})


def _examine_task(header: Mapping[str, Any], _: bytearray) -> TaskAnswer:
    number, path, member = header["file"]
    source = Source(
        Path(path),
        Path(header["out"]),
        modality=frozenset(header["modality"]),
        take_quarantined=header["take_quarantined"] and Path(header["take_quarantined"]),
        key=bytes.fromhex(header["key"]),
        keep_dates=header["keep_dates"],
        limits=ImageLimits(**header["limits"]),
    )
    try:
        examined = examine(SourceFile(number, source.path, member), source)
    except DataError as error:
        return {"outcome": "done", "failed": str(error)}, b""
    return {"outcome": "done", "examined": asdict(examined)}, b""


def list_dicom(source: Source) -> Listing:
    """Write de-identified films and list them; given again, a stopped import goes on.

    The source is a file, a folder, a zip archive, or a medium with a DICOMDIR.
    """
    silence_pydicom()
    if unknown := sorted(_modalities(source) - MODALITIES):
        raise DataError(f"{unknown[0]} is no modality of images; give one as DICOM writes it, such as CT.")
    files, folder = find_source_files(source.path), source.folder / _FOLDER
    if source.folder.resolve().is_relative_to(source.path.resolve()):
        raise DataError("The films are written out: give a second folder for them outside of the source.")
    if not files.files and not files.refused:
        raise DataError("There is no file in the source of the import.")
    if folder.is_symlink():
        raise DataError(f"{folder} leads to images elsewhere; give another folder, or remove the link.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{folder} cannot be made: {error.strerror}.") from None
    if source.take_quarantined is not None:
        _read_uids(source.take_quarantined)
    run = _Import(files, source)
    total = len(files.files) + len(files.refused)
    return Listing(_SOURCE, folder, total, run.items(), "file", files.left_out, run.notes, decoded=True)


DICOM: Final = Layout(
    "dicom",
    "films of a PACS: DICOM files in folders, a zip archive, or a medium (docs/guides/radiology.md)",
    list_dicom,
    frozenset({"modality", "take_quarantined", "reports"}),
    is_folder=False,
    writes_images=True,
    pseudonymizes=True,
)


def _modalities(source: Source) -> frozenset[str]:
    return frozenset(map(str.upper, source.modality))


@dataclass
class _Import:
    """The outcome of the files so far.

    Attributes:
        counts: Number of what is said at the end, by its words.
        seen: Number and digest of each instance.
        quarantined: Reason for each instance.
    """

    files: SourceFiles
    source: Source
    notes: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    seen: dict[str, tuple[int, str]] = field(default_factory=dict)
    quarantined: dict[str, str] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    patients: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    @property
    def _films(self) -> Path:
        return self.source.folder / _FOLDER

    def items(self) -> Iterator[Record | Rejection | LeftOut]:
        self._tidy()
        try:
            for refused in self.files.refused:
                yield self._refused(refused.line, refused.reason)
            with closing(examine_all(self.files.files, self.source)) as outcomes:
                for examined in outcomes:
                    yield from self._outcome(examined)
            self.notes += [f"{words}: {count:,}." for words, count in self.counts.items()]
            if self.quarantined:
                self.notes.append(
                    f"Review the films in {QUARANTINE_NAME}; --take-quarantined takes those that you list."
                )
            self.notes += self._name_mixed_studies()
            self._write_quarantine()
            os.sync()
        finally:
            self._tidy()

    def _tidy(self) -> None:
        for part in self._films.glob(".*.part"):
            part.unlink(missing_ok=True)

    def _outcome(self, examined: Examined) -> Iterator[Record | Rejection | LeftOut]:
        number, sop = examined.number, examined.sop
        if examined.refused:
            yield self._refused(number, examined.refused)
        elif examined.left_out:
            yield LeftOut(examined.left_out)
        elif examined.quarantined:
            self.quarantined.setdefault(sop, examined.quarantined)
            yield LeftOut(f"quarantined: {examined.quarantined}")
        elif sop not in self.seen:
            self.seen[sop] = number, examined.digest
            yield from self._taken(examined)
        elif self.seen[sop][1] == examined.digest:
            yield LeftOut("copies of instances that came before")
        else:
            yield self._refused(number, f"another instance {sop} came before, as file {self.seen[sop][0]}")

    def _refused(self, number: int, reason: str) -> Rejection:
        order = f"File numbers are places in: {self.files.order}."
        if order not in self.notes:
            self.notes.append(order)
        return Rejection(number, reason)

    def _taken(self, examined: Examined) -> Iterator[Record]:
        for words, count in (
            (f"Frames left out, above the first {MOST_FRAMES} of a file", examined.frames_left_out),
            (
                "New films read without their window or lookup table, which shows nothing of the picture",
                examined.unfit,
            ),
            ("Files without a SOP Instance UID, with ids made of their content", examined.without_uid),
            ("Files without a Study Instance UID, which are in no study", "study" not in examined.metadata),
        ):
            if count:
                self.counts[words] += count
        patient, study = examined.metadata.get("patient"), examined.metadata.get("study")
        if patient and study:
            self.patients[str(study)].add(str(patient))
        for frame, name in enumerate(examined.films, 1):
            if name in examined.aside:
                (self._films / examined.aside[name]).replace(self._films / name)
            self.taken.add(name)
            several = len(examined.films) > 1
            yield Record(
                id=name.removesuffix(".dcm"),
                image=name,
                group=examined.group,
                metadata={**examined.metadata, **({"frame": frame} if several else {})},
                line=examined.number,
                # All frames come from one file.
                rows=1 if frame == 1 else 0,
            )

    def _name_mixed_studies(self) -> Iterator[str]:
        """Give a sentence on each of the first studies with films of several patients."""
        mixed = [study for study, patients in self.patients.items() if len(patients) > 1]
        for study in mixed[:_SHOWN]:
            count = len(self.patients[study])
            yield f"Study {study} has films of {count} patients; each gets only reports that name its own."
        if len(mixed) > _SHOWN:
            yield f"{len(mixed) - _SHOWN:,} more studies have films of several patients."

    def _write_quarantine(self) -> None:
        """Write the table of what a person has to look at; films of these that an earlier import took go."""
        path = self.source.folder / QUARANTINE_NAME
        table = io.StringIO()
        csv.writer(table, lineterminator="\n").writerows([_COLUMNS, *self.quarantined.items()])
        if self.quarantined or path.exists():
            with atomic_file(path) as file:
                file.write(table.getvalue().encode())
        for sop in self.quarantined:
            frames = (f"{sop}.{frame}.dcm" for frame in range(1, MOST_FRAMES + 1))
            # A UID may go on where another one ends.
            for name in {f"{sop}.dcm", *frames} - self.taken:
                (self._films / name).unlink(missing_ok=True)


@lru_cache(maxsize=1)
def _read_uids(path: Path) -> frozenset[str]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return frozenset(row[0].strip() for row in csv.reader(file) if row)
    except (OSError, UnicodeDecodeError, csv.Error):
        raise DataError(
            f"{path} cannot be read; give a text file with SOP Instance UIDs, one a line."
        ) from None


if __name__ == "__main__":
    serve({"examine": _examine_task}, sys.argv[1:])

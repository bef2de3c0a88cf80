"""Films from DICOM files: de-identified copies, and the quarantine; names of files are kept nowhere.

Run as a module it is a process that examines files: one that a file ends, or that takes too long, costs that
file alone.
"""

import csv
import hashlib
import io
import os
import sys
from collections import Counter, defaultdict, deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from training.clinical.dicom.attributes import (
    MODALITIES,
    UNREADABLE,
    read_attributes,
    silence_pydicom,
    uid_of,
)
from training.clinical.dicom.films import group_of, look_at, with_uid, write_films
from training.clinical.dicom.objects import DIRECTORY, kind_of, read_object
from training.common.atomic import atomic_file
from training.common.errors import DataError, ImageError
from training.common.record import MetadataValue, Record
from training.common.rejections import LeftOut, Rejection
from training.imaging.dicom.picture import open_dicom
from training.imaging.formats import is_dicom
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
from training.importing.dicom_files import Place, SourceFiles, find_places, read_place
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


@dataclass(frozen=True)
class Examined:
    """Outcome of a file.

    Attributes:
        refused: Reason why the file cannot be used.
        left_out: Reason why the file is passed over.
        quarantined: Reason why a person has to look at the file first.
        group: Pseudonym of the patient, or of the study where no patient is named.
        films: Names of the films, one a frame; new films are written aside.
        aside: The file that holds a new film until it is taken, by name.
        digest: SHA-256 of all films.
        frames_left_out: Number of frames above the limit.
        without_uid: Whether the file has no valid SOP Instance UID.
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


def examine(place: Place, source: Source) -> Examined:
    """Read a file and write its films aside; no error has a word of the file.

    Raises:
        DataError: The films cannot be written.
    """
    try:
        return _examine(place, source)
    except ImageError as error:
        return Examined(place.number, refused=str(error).rstrip("."))
    except UNREADABLE:
        return Examined(place.number, refused="it is damaged: its attributes cannot be read")


def _examine(place: Place, source: Source) -> Examined:
    folder, most = source.folder / _FOLDER, source.limits.max_dicom_bytes
    content = read_place(place, most)
    if not is_dicom(content):
        return Examined(place.number, left_out="files that are not DICOM")
    if len(content) > most:
        raise ImageError(
            f"it has over {most / 1e6:,.0f} MB, the limit of a DICOM file (RECOQUEST_MAX_IMAGE_BYTES)"
        )
    dataset = read_object(content, most)
    if uid_of(dataset.file_meta, "MediaStorageSOPClassUID") == DIRECTORY:
        return Examined(place.number, left_out="directories of media")
    kind = kind_of(dataset, _modalities(source))
    if kind.left_out:
        return Examined(place.number, left_out=kind.left_out)
    stated = read_attributes(dataset, key=source.key, keep_dates=source.keep_dates)
    metadata = with_uid(stated, content)
    sop = str(metadata["sop"])
    looked_at = source.take_quarantined is not None and sop in _read_uids(source.take_quarantined)
    if kind.quarantined and not looked_at:
        return Examined(place.number, quarantined=kind.quarantined, metadata=metadata)
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
                return Examined(place.number, quarantined=f"text {text}", metadata=metadata)
            aside[name] = f".{place.number}.{frame}.part"
            (folder / aside[name]).write_bytes(film)
    return Examined(
        place.number,
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


def examine_all(places: Sequence[Place], source: Source) -> Generator[Examined, None, None]:
    """Examine files in processes, and give the outcomes in order; closed, it ends them.

    Raises:
        DataError: The films cannot be written.
        DecoderStartError: No process can be started.
    """
    count = max(1, min(len(os.sched_getaffinity(0)), len(places)))
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
    waiting = deque[tuple[Place, Future[Answer]]]()
    with closing(DecodingPool(limits)) as pool:
        for place in places:
            task = Task(
                {**header, "place": [place.number, str(place.path.absolute()), place.member]}, _ANSWER_BYTES
            )
            waiting.append((place, pool.submit(task, Priority.UPLOAD)))
            while waiting and (waiting[0][1].done() or len(waiting) == _WAITING * count):
                yield _outcome_of(*waiting.popleft())
        while waiting:
            yield _outcome_of(*waiting.popleft())


def _outcome_of(place: Place, answer: Future[Answer]) -> Examined:
    try:
        header = answer.result().header
    except (ImageError, DecodingTimeoutError) as error:
        return Examined(place.number, refused=str(error).rstrip("."))
    if "failed" in header:
        raise DataError(header["failed"])
    known = header["examined"]
    # JSON has no tuples.
    metadata = {
        name: tuple(value) if isinstance(value, list) else value for name, value in known["metadata"].items()
    }
    return Examined(**{**known, "metadata": metadata})


def _examine_task(header: Mapping[str, Any], _: bytearray) -> TaskAnswer:
    number, path, member = header["place"]
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
        examined = examine(Place(number, source.path, member), source)
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
    files, folder = find_places(source.path), source.folder / _FOLDER
    if source.folder.resolve().is_relative_to(source.path.resolve()):
        raise DataError("The films are written out: give a second folder for them outside of the source.")
    if not files.places and not files.refused:
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
    total = len(files.places) + len(files.refused)
    return Listing(_SOURCE, folder, total, run.items(), "file", files.left_out, run.notes, decoded=True)


DICOM: Final = Layout(
    "dicom",
    "films of a PACS: DICOM files in folders, a zip archive, or a medium (docs/dicom.md)",
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
        taken: Names of films.
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
            with closing(examine_all(self.files.places, self.source)) as outcomes:
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

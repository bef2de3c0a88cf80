"""DICOM files as films: de-identified in a decoding process, or the reason why they are not taken."""

import asyncio
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, cast

from pydicom import Dataset

from app.decoding.images import WORKER
from app.settings import Settings
from index.keys.home_secret import patient_key
from training.clinical.dicom.attributes import read_attributes, uid_of
from training.clinical.dicom.films import group_of, look_at, with_uid, write_films
from training.clinical.dicom.objects import kind_of, read_object
from training.common.errors import ImageError
from training.common.host import decoding_threads
from training.common.record import MetadataValue, Record
from training.imaging.dicom.picture import open_dicom
from training.imaging.images import ImageLimits
from training.imaging.processes.pool import (
    Answer,
    DecodingPool,
    DecodingTimeoutError,
    PoolLimits,
    Priority,
    Task,
)
from training.importing.dicom import MOST_FRAMES
from training.importing.splits import draw_split

FilmOutcome = Literal["taken", "refused", "left out", "quarantined"]

# Enough for samples of 16 bits; some transfer syntaxes take less.
_BYTES_A_PIXEL: Final = 4
_HEADER_BYTES: Final = 1 << 20
_LARGEST: Final = 512 << 20
_CPU_S: Final = 30
_DEADLINE_S: Final = 120.0
_WAITING: Final = 64


@dataclass(frozen=True, slots=True)
class FilmRules:
    """Rules for reading films.

    Attributes:
        key: Secret of the pseudonyms and of the shifts of dates.
        modalities: Modalities that are taken in addition to those of films, such as CT.
    """

    key: bytes = field(repr=False)
    keep_dates: bool = False
    modalities: tuple[str, ...] = ()

    @classmethod
    def from_settings(cls, settings: Settings, modalities: tuple[str, ...] = ()) -> "FilmRules":
        """Return the rules of a home folder.

        Raises:
            HomeError: The key of pseudonyms cannot be used.
        """
        return cls(patient_key(settings.home), settings.keep_dates, modalities)

    def attributes(self, dataset: Dataset) -> Mapping[str, Any]:
        """Return the metadata of an instance by its attributes."""
        return read_attributes(dataset, key=self.key, keep_dates=self.keep_dates)


@dataclass(frozen=True, slots=True)
class Film:
    """An image of an instance, de-identified.

    Attributes:
        record: Its record; the id is the SOP Instance UID, with the frame's number where there are several.
    """

    record: Record
    content: bytes


@dataclass(frozen=True, slots=True)
class Reading:
    """A file that was read.

    Attributes:
        outcome: "taken" where it has films.
        reason: Why it was not taken, without anything of the file.
    """

    outcome: FilmOutcome
    films: tuple[Film, ...] = ()
    reason: str = ""


class FilmReader:
    """Reads DICOM files in the processes of a pool; threads may share it."""

    def __init__(self, pool: DecodingPool, rules: FilmRules, limits: ImageLimits, deadline_s: float) -> None:
        self.rules = rules
        self.limits = limits
        self._pool = pool
        self._deadline_s = deadline_s

    def read(self, content: bytes) -> Reading:
        """Read a file; the calling thread waits.

        Raises:
            DecodingError: It was not done in time, or the pool ends.
            DecoderStartError: No process can be started.
        """
        future = self._submitted(content)
        try:
            return self._reading(future.result(self._deadline_s))
        except TimeoutError:
            future.cancel()
            raise DecodingTimeoutError("The film could not be read in time; try again later.") from None
        except ImageError as error:
            return Reading("refused", reason=str(error))

    async def read_upload(self, content: bytes) -> Reading:
        """Read a file, as `read` does; a caller that is cancelled leaves the queue."""
        future = asyncio.wrap_future(self._submitted(content))
        try:
            return self._reading(await asyncio.wait_for(future, self._deadline_s))
        except TimeoutError:
            raise DecodingTimeoutError("The film could not be read in time; try again later.") from None
        except ImageError as error:
            return Reading("refused", reason=str(error))

    def _submitted(self, content: bytes) -> Future[Answer]:
        header = {
            "task": "film",
            "key": self.rules.key.hex(),
            "keep_dates": self.rules.keep_dates,
            "modalities": self.rules.modalities,
            "max_bytes": self.limits.max_bytes,
            "max_pixels": self.limits.max_pixels,
        }
        most = min(_LARGEST, _HEADER_BYTES + _BYTES_A_PIXEL * self.limits.max_pixels)
        return self._pool.submit(Task(header, most, content), Priority.UPLOAD, self._deadline_s)

    def _reading(self, answer: Answer) -> Reading:
        reason, metadata, sizes = (answer.header.get(name) for name in ("reason", "metadata", "sizes"))
        if answer.header.get("what") != "taken":
            return Reading(cast(FilmOutcome, answer.header.get("what")), reason=str(reason))
        assert isinstance(metadata, dict)
        assert isinstance(sizes, list)
        # JSON has no tuples.
        parsed = {
            name: tuple(value) if isinstance(value, list) else value for name, value in metadata.items()
        }
        films, offset = [], 0
        for frame, size in enumerate(sizes, 1):
            content = bytes(answer.body[offset : offset + size])
            films.append(Film(self._record(parsed, frame if len(sizes) > 1 else None), content))
            offset += size
        return Reading("taken", tuple(films))

    def _record(self, metadata: Mapping[str, MetadataValue], frame: int | None) -> Record:
        sop = str(metadata["sop"])
        group = group_of(metadata, self.rules.key)
        fields = metadata if frame is None else {**metadata, "frame": frame}
        name = sop if frame is None else f"{sop}.{frame}"
        return Record(name, "sent", draw_split(group), group=group, metadata=fields)


@contextmanager
def film_reader(settings: Settings, modalities: tuple[str, ...] = ()) -> Iterator[FilmReader]:
    """Give a reader with processes of its own, for a command that takes many films."""
    rules = FilmRules.from_settings(settings, modalities)
    limits = replace(settings.image_limits, max_bytes=settings.image_limits.max_dicom_bytes)
    memory = settings.decode_memory_bytes
    pool = DecodingPool(PoolLimits(WORKER, decoding_threads(), _WAITING, _DEADLINE_S, memory, _CPU_S))
    try:
        yield FilmReader(pool, rules, limits, _DEADLINE_S)
    finally:
        pool.close()


def read_film(header: Mapping[str, Any], content: bytes) -> tuple[dict[str, Any], bytes]:
    """Read a file in a decoding process; the answer has its metadata, and the sizes of the films in its body.

    Raises:
        ImageTooLargeError: It is over the limits.
        ImageError: It is damaged, or no DICOM file.
    """
    limits = ImageLimits(max_bytes=header["max_bytes"], max_pixels=header["max_pixels"])
    dataset = read_object(content, limits.max_bytes)
    kind = kind_of(dataset, header["modalities"])
    if kind.left_out:
        return _not_taken("left out", kind.left_out)
    if kind.quarantined:
        return _not_taken("quarantined", kind.quarantined)
    key = bytes.fromhex(header["key"])
    metadata = with_uid(read_attributes(dataset, key=key, keep_dates=header["keep_dates"]), content)
    image = open_dicom(content, limits.max_bytes, limits.max_pixels)
    films = []
    for film in write_films(image, metadata, uid_of(dataset, "SOPClassUID"), MOST_FRAMES):
        if location := look_at(film, limits)[0]:
            return _not_taken("quarantined", f"text {location}")
        films.append(film)
    about = {"what": "taken", "metadata": metadata, "sizes": [len(film) for film in films]}
    return {"outcome": "done", **about}, b"".join(films)


def _not_taken(what: FilmOutcome, reason: str) -> tuple[dict[str, Any], bytes]:
    return {"outcome": "done", "what": what, "reason": reason}, b""

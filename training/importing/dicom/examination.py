"""One file of an import, in a process of its own: films are written aside; else there is a reason why not."""

import hashlib
import resource
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from training.clinical.dicom.attributes import UNREADABLE, read_attributes, uid_of
from training.clinical.dicom.films import group_of, look_at, with_uid, write_films
from training.clinical.dicom.objects import DIRECTORY, kind_of, read_object
from training.common.errors import DataError, ImageError
from training.common.record import MetadataValue
from training.imaging.dicom.picture import open_dicom
from training.imaging.formats import is_dicom
from training.imaging.images import ImageLimits
from training.importing.dicom.places import Place, read_place

# A run of fluoroscopy has more; the first ones show what it is of.
MOST_FRAMES: Final = 100
# 50 megapixels of 16 bits take 650 MB; colours, and the scans of one after the other, more.
_MEMORY_BYTES: Final = 1_200_000_000


@dataclass(frozen=True)
class Rules:
    """Rules of an import: the files to take, and pseudonyms.

    Attributes:
        folder: Folder of the films, also of those that are written aside.
        key: Secret for hashes and shifts.
        keep_dates: Keep dates as they are.
        modalities: Modalities that are taken beside those of films, such as CT.
        looked_at: SOP Instance UIDs that a person has looked at: their films are not quarantined.
        limits: What an image may cost.
    """

    folder: Path
    key: bytes = field(repr=False)
    keep_dates: bool = False
    modalities: frozenset[str] = frozenset()
    looked_at: frozenset[str] = frozenset()
    limits: ImageLimits = field(default_factory=ImageLimits)

    @property
    def memory_bytes(self) -> int:
        """Memory that a file may take."""
        return _MEMORY_BYTES * max(1, -(-self.limits.max_pixels // ImageLimits.max_pixels))


@dataclass(frozen=True)
class Examined:
    """Outcome of a file.

    Attributes:
        number: Number of the file.
        refused: Reason why the file cannot be used.
        left_out: Reason why the file is passed over.
        quarantined: Reason why a person has to look at the file first.
        metadata: Metadata of the films.
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
    films: tuple[str, ...] = ()
    aside: Mapping[str, Path] = field(default_factory=dict)
    digest: str = ""
    frames_left_out: int = 0
    without_uid: bool = False
    unfit: int = 0

    @property
    def sop(self) -> str:
        """SOP Instance UID; "" where it is not known."""
        return str(self.metadata.get("sop", ""))


def limit_memory(most_bytes: int = _MEMORY_BYTES) -> None:
    """Bound the memory of this process beyond what it has: a file that asks for more is refused."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    status = dict(line.split(":", 1) for line in lines)
    own = 1024 * int(status["VmData"].split()[0])
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = own + most_bytes if hard == resource.RLIM_INFINITY else min(hard, own + most_bytes)
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


def examine(place: Place, rules: Rules) -> Examined:
    """Read a file and write its films aside; no error has a word of the file.

    Raises:
        DataError: The films cannot be written.
    """
    try:
        return _examine(place, rules)
    except ImageError as error:
        return Examined(place.number, refused=str(error).rstrip("."))
    except MemoryError:
        too_much = f"decoding it takes over {rules.memory_bytes / 1e9:.1f} GB of memory, the limit of a file"
        return Examined(place.number, refused=too_much)
    except UNREADABLE:
        return Examined(place.number, refused="it is damaged: its attributes cannot be read")


def _examine(place: Place, rules: Rules) -> Examined:
    most = rules.limits.max_dicom_bytes
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
    kind = kind_of(dataset, rules.modalities)
    if kind.left_out:
        return Examined(place.number, left_out=kind.left_out)
    stated = read_attributes(dataset, key=rules.key, keep_dates=rules.keep_dates)
    metadata = with_uid(stated, content)
    sop = str(metadata["sop"])
    looked_at = sop in rules.looked_at
    if kind.quarantined and not looked_at:
        return Examined(place.number, quarantined=kind.quarantined, metadata=metadata)
    image = open_dicom(content, most, rules.limits.max_pixels)
    frames = image.attributes.frames
    films, aside, digest, text, unfit = [], {}, hashlib.sha256(), "", 0
    sop_class = uid_of(dataset, "SOPClassUID")
    written = write_films(image, metadata, sop_class, MOST_FRAMES, looked_at=looked_at)
    for frame, film in enumerate(written):
        name = f"{sop}.{frame + 1}.dcm" if frames > 1 else f"{sop}.dcm"
        films.append(name)
        digest.update(film)
        with _writing():
            # An earlier run has looked for text on it.
            if _is_there(rules.folder / name, film):
                continue
        found, is_unfit = look_at(film, rules.limits)
        unfit += is_unfit
        if found and not looked_at:
            text = found
            break
        aside[name] = rules.folder / f".{place.number}.{frame}.part"
        with _writing():
            aside[name].write_bytes(film)
    if text:
        with _writing():
            _remove(aside)
        return Examined(place.number, quarantined=f"text {text}", metadata=metadata)
    return Examined(
        place.number,
        metadata=metadata,
        group=group_of(metadata, rules.key),
        films=tuple(films),
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


def _is_there(path: Path, film: bytes) -> bool:
    return path.is_file() and path.stat().st_size == len(film) and path.read_bytes() == film


def _remove(aside: Mapping[str, Path]) -> None:
    for path in aside.values():
        path.unlink(missing_ok=True)

"""DICOM files with a marker in every place for text, and the search for it in whatever was written."""

import gzip
import io
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np
from PIL import Image
from pydicom import Dataset
from pydicom._dicom_dict import DicomDictionary
from pydicom.encaps import encapsulate
from pydicom.sequence import Sequence
from pydicom.uid import UID, ImplicitVRLittleEndian, JPEG2000Lossless, JPEGBaseline8Bit

from tests.dicom_films import MARKER, encoded, make_film
from training.clinical.dicom.attributes import silence_pydicom

_TEXTS: Final = {
    "AE": 16,
    "CS": 16,
    "LO": 64,
    "LT": 200,
    "PN": 60,
    "SH": 16,
    "ST": 200,
    "UC": 200,
    "UR": 60,
    "UT": 200,
}
# Texts of numbers, times and UIDs, which a marker is none of.
_FORMS: Final = ("AS", "DA", "DS", "DT", "IS", "TM", "UI")
# Decide what the object is, and how its pixels are read.
_LEFT: Final = frozenset(
    {
        *("SpecificCharacterSet", "Modality", "ImageType", "ConversionType", "BurnedInAnnotation"),
        *("PhotometricInterpretation", "VOILUTFunction", "PresentationLUTShape", "PatientAge", "PatientSex"),
        *("ViewPosition", "BodyPartExamined", "PatientOrientation", "ImageLaterality"),
        *("SOPClassUID", "SOPInstanceUID", "StudyInstanceUID", "SeriesInstanceUID", "NumberOfFrames"),
        *("WindowCenter", "WindowWidth", "RescaleIntercept", "RescaleSlope"),
    }
)
_GROUPS: Final = frozenset(range(0x0008, 0x7FE0))


def marked_film(number: int, **attributes: Any) -> Dataset:
    """Make a film with a marker of its own in each attribute of the dictionary that is a text."""
    silence_pydicom()
    film = make_film(number, **attributes)
    _mark(film)
    inner, middle, outer = Dataset(), Dataset(), Dataset()
    for item in (inner, middle, outer):
        _mark(item)
    middle.ContentSequence = Sequence([inner])
    outer.ContentSequence = Sequence([middle])
    for keyword in ("RequestAttributesSequence", "OriginalAttributesSequence", "AnatomicRegionSequence"):
        setattr(film, keyword, Sequence([outer]))
    film.ViewCodeSequence = Sequence([outer])
    block = film.private_block(0x0099, MARKER, create=True)
    block.add_new(0x01, "LO", MARKER)
    block.add_new(0x02, "OB", MARKER.encode("utf-16-le"))
    film.add_new(0x60000022, "LO", MARKER)
    film.add_new(0x60003000, "OB", MARKER.encode())
    for keyword in (
        "SourceApplicationEntityTitle",
        "SendingApplicationEntityTitle",
        "ImplementationVersionName",
    ):
        setattr(film.file_meta, keyword, MARKER)
    film.file_meta.PrivateInformationCreatorUID = UID("1.2.3")
    film.file_meta.PrivateInformation = MARKER.encode()
    film.preamble = MARKER.encode() * 16
    return film


def jpeg_film(number: int) -> Dataset:
    """Make a marked film in lossy JPEG whose stream has comments and data of applications."""
    film = marked_film(number)
    stream = io.BytesIO()
    picture = Image.linear_gradient("L").resize((film.Columns, film.Rows))
    picture.save(stream, "JPEG")
    film.BitsAllocated = film.BitsStored = 8
    film.HighBit = 7
    film.WindowCenter, film.WindowWidth = "128", "256"
    return _with_frame(film, commented_jpeg(stream.getvalue()), JPEGBaseline8Bit)


def j2k_film(number: int) -> Dataset:
    """Make a marked film in JPEG 2000 whose stream has comments."""
    film = marked_film(number)
    stream = io.BytesIO()
    Image.fromarray(np.frombuffer(film.PixelData, "<u2").reshape(film.Rows, film.Columns)).save(
        stream, "JPEG2000", no_jp2=True, irreversible=False
    )
    film.BitsStored, film.HighBit = 16, 15
    return _with_frame(film, commented_j2k(stream.getvalue()), JPEG2000Lossless)


def film_of_frames(number: int) -> Dataset:
    """Make a marked film of two frames."""
    film = marked_film(number, NumberOfFrames=2)
    film.PixelData = film.PixelData * 2
    film["PixelData"].VR = "OW"
    return film


def implicit_film(number: int) -> Dataset:
    """Make a marked film in implicit little-endian."""
    film = marked_film(number)
    film.file_meta.TransferSyntaxUID = ImplicitVRLittleEndian
    return film


def film_of_wrong_values(number: int) -> bytes:
    """Make the file of a marked film with a marker in each number, time and UID beside its picture."""
    film = marked_film(number)
    forms = {}
    for tag, (representation, _, _, _, keyword) in DicomDictionary.items():
        if representation in _FORMS and tag >> 16 in _GROUPS and keyword and keyword not in _LEFT:
            film.add_new(tag, "LO", f"{MARKER}{tag:08X}")
            forms[tag] = representation
    content = encoded(film)
    for tag, representation in forms.items():
        named = struct.pack("<HH", tag >> 16, tag & 0xFFFF)
        content = content.replace(named + b"LO", named + representation.encode(), 1)
    return content


def commented_jpeg(frame: bytes) -> bytes:
    """Return a JPEG stream with a marker in comments and data of applications, and behind its end."""
    marker, parts = MARKER.encode(), [frame[:2]]
    for segment, content in (
        (0xFE, marker),
        (0xE1, b"Exif\0\0" + marker),
        (0xE0, b"JFXX\0" + marker),
        (0xEE, marker),
        (0xE8, marker),
    ):
        parts.append(struct.pack(">BBH", 0xFF, segment, len(content) + 2) + content)
    return b"".join(parts) + frame[2:] + marker


def commented_j2k(frame: bytes) -> bytes:
    """Return a JPEG 2000 stream with a marker in comments of its headers, and behind its end."""
    marker = MARKER.encode()
    comment = struct.pack(">HHH", 0xFF64, len(marker) + 4, 1) + marker
    size = 4 + struct.unpack_from(">H", frame, 4)[0]
    tile = frame.index(b"\xff\x90")
    length = struct.unpack_from(">I", frame, tile + 6)[0]
    header = (
        frame[tile : tile + 6]
        + struct.pack(">I", length and length + len(comment))
        + frame[tile + 10 : tile + 12]
    )
    return frame[:size] + comment + frame[size:tile] + header + comment + frame[tile + 12 :] + marker


def _with_frame(film: Dataset, frame: bytes, syntax: UID) -> Dataset:
    film.PixelData = encapsulate([frame + bytes(len(frame) % 2)])
    film["PixelData"].is_undefined_length = True
    film["PixelData"].VR = "OB"
    film.file_meta.TransferSyntaxUID = syntax
    return film


def _mark(dataset: Dataset) -> None:
    for tag, (representation, _, _, _, keyword) in DicomDictionary.items():
        if representation in _TEXTS and tag >> 16 in _GROUPS and keyword and keyword not in _LEFT:
            dataset.add_new(tag, representation, f"{MARKER}{tag:08X}"[: _TEXTS[representation]])


def places_of_marker(root: Path) -> list[str]:
    """Name the files below a folder that have a marker in their name or their content."""
    return [
        str(path)
        for path in sorted(root.rglob("*"))
        if MARKER.casefold() in path.name.casefold() or (path.is_file() and has_marker(path.read_bytes()))
    ]


def has_marker(content: bytes) -> bool:
    """Return whether bytes have a marker, plain, in UTF-16, or in what is compressed in them."""
    return any(_has_plainly(part) for part in (content, *inflated(content)))


def _has_plainly(content: bytes) -> bool:
    forms = (MARKER.encode(), MARKER.encode("utf-16-le"), MARKER.encode("utf-16-be"))
    lowered = content.lower()
    return any(form.lower() in lowered for form in forms)


def inflated(content: bytes) -> Iterator[bytes]:
    """Yield what is compressed in bytes by zlib, gzip or zip."""
    for start, window in ((b"\x78\x9c", 15), (b"\x78\x01", 15), (b"\x78\xda", 15), (b"\x1f\x8b\x08", 31)):
        place = content.find(start)
        while place >= 0:
            with suppress(zlib.error):
                yield zlib.decompressobj(window).decompress(content[place:], 1 << 24)
            place = content.find(start, place + 1)
    if zipfile.is_zipfile(io.BytesIO(content)):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            yield from (archive.read(name) for name in archive.namelist())


def _examples() -> Iterator[bytes]:
    plain = f"x{MARKER}y".encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("name", plain)
    yield from (plain, b"ab" + zlib.compress(plain), gzip.compress(plain, mtime=0), packed.getvalue())
    yield f"x{MARKER.lower()}".encode("utf-16-be")


MARKED: Final = tuple(_examples())

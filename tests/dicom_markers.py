"""DICOM files with a marker in every place for text, and the search for it in whatever was written."""

import gzip
import io
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from PIL import Image
from pydicom import Dataset
from pydicom._dicom_dict import DicomDictionary
from pydicom.encaps import encapsulate
from pydicom.sequence import Sequence
from pydicom.uid import JPEGBaseline8Bit

from tests.dicom_films import MARKER, make_film
from training.data.dicom.silence import silence_pydicom

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
# Decide what the object is; the manufacturer is kept as it is.
_LEFT: Final = frozenset(
    {
        *("SpecificCharacterSet", "Modality", "ImageType", "ConversionType", "BurnedInAnnotation"),
        *("PhotometricInterpretation", "Manufacturer", "PatientAge", "PatientSex", "ViewPosition"),
        *("BodyPartExamined", "PatientOrientation", "ImageLaterality"),
    }
)
# Group 0028 says how pixels are laid out.
_GROUPS: Final = frozenset(range(0x0008, 0x7FE0)) - {0x0028}


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
    film.file_meta.SourceApplicationEntityTitle = film.file_meta.ImplementationVersionName = MARKER
    film.preamble = MARKER.encode() * 16
    return film


def jpeg_film(number: int) -> Dataset:
    """Make a marked film in lossy JPEG whose stream has comments and data of applications."""
    film = marked_film(number)
    stream = io.BytesIO()
    picture = Image.linear_gradient("L").resize((film.Columns, film.Rows))
    picture.save(stream, "JPEG", comment=MARKER.encode(), exif=b"Exif\0\0" + MARKER.encode())
    content = stream.getvalue() + MARKER.encode()
    film.PixelData = encapsulate([content + bytes(len(content) % 2)])
    film["PixelData"].is_undefined_length = True
    film["PixelData"].VR = "OB"
    film.BitsAllocated = film.BitsStored = 8
    film.HighBit = 7
    film.WindowCenter, film.WindowWidth = "128", "256"
    film.file_meta.TransferSyntaxUID = JPEGBaseline8Bit
    return film


def _mark(dataset: Dataset) -> None:
    for tag, (representation, multiplicity, _, retired, keyword) in DicomDictionary.items():
        is_text = representation in _TEXTS and tag >> 16 in _GROUPS and multiplicity.startswith("1")
        if is_text and keyword and not retired and keyword not in _LEFT:
            dataset.add_new(tag, representation, f"{MARKER}{tag:08X}"[: _TEXTS[representation]])


def places_of_marker(root: Path) -> list[str]:
    """Name the files below a folder that have a marker in their name or their content."""
    return [
        str(path)
        for path in sorted(root.rglob("*"))
        if MARKER.casefold() in path.name.casefold() or (path.is_file() and has_marker(path.read_bytes()))
    ]


def has_marker(content: bytes) -> bool:
    """Tell if bytes have a marker, plain, in UTF-16, or in what is compressed in them."""
    return any(_has_plainly(part) for part in (content, *_inflated(content)))


def _has_plainly(content: bytes) -> bool:
    forms = (MARKER.encode(), MARKER.encode("utf-16-le"), MARKER.encode("utf-16-be"))
    lowered = content.lower()
    return any(form.lower() in lowered for form in forms)


def _inflated(content: bytes) -> Iterator[bytes]:
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
    yield from (plain, b"ab" + zlib.compress(plain), gzip.compress(plain), packed.getvalue())
    yield f"x{MARKER.lower()}".encode("utf-16-be")


MARKED: Final = tuple(_examples())

"""A film as it is stored: a DICOM file of one frame, with allow-listed attributes and pixels only.

An instance gives a film for each frame, with the UIDs and the group of their records.
"""

import hashlib
import io
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from pydicom import Dataset
from pydicom.dataset import FileMetaDataset
from pydicom.encaps import encapsulate
from pydicom.sequence import Sequence
from pydicom.uid import UID, ExplicitVRLittleEndian, SecondaryCaptureImageStorage
from pydicom.valuerep import format_number_as_ds

from training.clinical.dicom.burned_text import as_grey, find_text
from training.clinical.dicom.codestreams import strip_comments
from training.clinical.dicom.elements import UNREADABLE
from training.clinical.pseudonyms import keyed_hash
from training.common.errors import ImageError, ImageTooLargeError
from training.common.record import MetadataValue
from training.imaging.dicom.attributes import PALETTE, YBR_422, PixelAttributes
from training.imaging.dicom.elements import Elements
from training.imaging.dicom.file import NATIVE
from training.imaging.dicom.frames import compressed_frame
from training.imaging.dicom.grey import MOST_WINDOWS, functional_group
from training.imaging.dicom.picture import DicomImage
from training.imaging.dicom.samples import decode_frame
from training.imaging.dicom.tags import Tag
from training.imaging.images import ImageLimits, decode_whole

_RLE: Final = "1.2.840.10008.1.2.5"
# A number of this program's own, made once.
IMPLEMENTATION: Final = "2.25.302486531975421096713882340187765021"
_NAME: Final = "RECOQUEST"
LOOKED_AT: Final = "TAKEN FROM QUARANTINE"
# Attributes by the name of the metadata that they take.
_TEXTS: Final = {
    "StudyInstanceUID": "study",
    "SeriesInstanceUID": "series",
    "SOPInstanceUID": "sop",
    "PatientID": "patient",
    "AccessionNumber": "accession",
    "Modality": "modality",
    "ImageLaterality": "laterality",
    "PatientOrientation": "orientation",
    "PatientSex": "sex",
    "Manufacturer": "manufacturer",
}
_CODES: Final = {"ViewPosition": "view", "BodyPartExamined": "body_part"}
_MOST_BYTES: Final = 1 << 30
_LONGEST_CODE: Final = 16
_FUNCTIONS: Final = ("LINEAR", "LINEAR_EXACT", "SIGMOID")
_RESCALES: Final = {"RescaleSlope": Tag.RESCALE_SLOPE, "RescaleIntercept": Tag.RESCALE_INTERCEPT}
_WINDOWS: Final = {"WindowCenter": Tag.WINDOW_CENTER, "WindowWidth": Tag.WINDOW_WIDTH}
_PADDINGS: Final = {
    "PixelPaddingValue": Tag.PIXEL_PADDING_VALUE,
    "PixelPaddingRangeLimit": Tag.PIXEL_PADDING_RANGE_LIMIT,
}
_PALETTES: Final = {
    "Red": (Tag.RED_PALETTE_DESCRIPTOR, Tag.RED_PALETTE_DATA),
    "Green": (Tag.GREEN_PALETTE_DESCRIPTOR, Tag.GREEN_PALETTE_DATA),
    "Blue": (Tag.BLUE_PALETTE_DESCRIPTOR, Tag.BLUE_PALETTE_DATA),
}
_LUT_TAGS: Final = frozenset({Tag.LUT_DESCRIPTOR, Tag.LUT_DATA})


def write_film(
    image: DicomImage,
    frame: int,
    metadata: Mapping[str, MetadataValue],
    sop_class: str,
    *,
    looked_at: bool = False,
) -> bytes:
    """Return a DICOM file that decodes as a frame of an image does, and says nothing but its metadata.

    Args:
        image: The image as it came.
        frame: Number of the frame, from 0.
        metadata: As `read_attributes` returns it.
        sop_class: UID of the image's SOP class; "": it is not known.
        looked_at: Whether a person took it from quarantine, which it says then.

    Raises:
        ImageTooLargeError: The frame has more parts than any program writes.
        ImageError: It is damaged, or cannot be read.
    """
    film = Dataset()
    film.SOPClassUID = sop_class or SecondaryCaptureImageStorage
    _write_metadata(film, metadata)
    film.DeidentificationMethod = [_NAME, LOOKED_AT] if looked_at else _NAME
    elements = image.file.elements
    laid = image.attributes
    if laid.photometric == PALETTE:
        for colour, (descriptor, data) in _PALETTES.items():
            prefix = f"{colour}PaletteColorLookupTable"
            _write_table(film, elements, descriptor, data, f"{prefix}Descriptor", f"{prefix}Data")
    elif laid.is_grey:
        _write_grey_scale(film, elements, laid, frame)
    syntax = _write_pixels(film, image, frame)
    film.file_meta = FileMetaDataset()
    film.file_meta.TransferSyntaxUID = UID(syntax)
    film.file_meta.ImplementationClassUID = UID(IMPLEMENTATION)
    film.file_meta.ImplementationVersionName = _NAME
    file = io.BytesIO()
    film.save_as(file, enforce_file_format=True)
    return file.getvalue()


def _write_metadata(film: Dataset, metadata: Mapping[str, MetadataValue]) -> None:
    film.SpecificCharacterSet = "ISO_IR 192"
    film.PatientName = film.PatientBirthDate = ""
    film.PatientIdentityRemoved = "YES"
    for keyword, name in _TEXTS.items():
        if name in metadata:
            setattr(
                film, keyword, str(metadata[name]).split("\\") if name == "orientation" else metadata[name]
            )
    for keyword, name in _CODES.items():
        if name in metadata:
            setattr(film, keyword, _shortened(str(metadata[name])))
    if "age" in metadata:
        film.PatientAge = f"{metadata['age']:03}Y"
    if "date" in metadata:
        film.StudyDate = str(metadata["date"]).replace("-", "")
    if metadata.get("date_shifted"):
        film.LongitudinalTemporalInformationModified = "MODIFIED"


def _shortened(words: str) -> str:
    """Leave out the last words of a code that is too long."""
    while len(words) > _LONGEST_CODE:
        words = words.rpartition(" ")[0]
    return words


def _write_grey_scale(film: Dataset, elements: Elements, laid: PixelAttributes, frame: int) -> None:
    """Write how the frame's samples become grey levels: the first table of several, and the windows."""
    rescaled = functional_group(
        elements, frame, Tag.PIXEL_VALUE_TRANSFORMATION_SEQUENCE, frozenset(_RESCALES.values())
    )
    _write_numbers(film, rescaled or elements, _RESCALES)
    _write_lut(film, elements, Tag.MODALITY_LUT_SEQUENCE, "ModalityLUTSequence")
    wanted = frozenset((*_WINDOWS.values(), Tag.VOI_LUT_FUNCTION, Tag.VOI_LUT_SEQUENCE))
    shown = functional_group(elements, frame, Tag.FRAME_VOI_LUT_SEQUENCE, wanted) or elements
    _write_numbers(film, shown, _WINDOWS, MOST_WINDOWS)
    if (function := shown.text(Tag.VOI_LUT_FUNCTION).upper()) in _FUNCTIONS:
        film.VOILUTFunction = function
    _write_lut(film, shown, Tag.VOI_LUT_SEQUENCE, "VOILUTSequence")
    for keyword, tag in _PADDINGS.items():
        for number in elements.numbers(tag, "h" if laid.signed else "H")[:1]:
            value = int(number) & 0xFFFF
            signed = value - (1 << 16) if laid.signed and value >> 15 else value
            film.add_new(keyword, "SS" if laid.signed else "US", signed)


def _write_numbers(film: Dataset, elements: Elements, tags: Mapping[str, Tag], most: int = 1) -> None:
    for keyword, tag in tags.items():
        # Numbers of binary representations are whole, which pydicom does not format.
        if numbers := [format_number_as_ds(float(number)) for number in elements.numbers(tag)[:most]]:
            setattr(film, keyword, numbers)


def _write_lut(film: Dataset, elements: Elements, sequence: Tag, keyword: str) -> None:
    table = elements.item(sequence, _LUT_TAGS)
    if table is not None and Tag.LUT_DATA in table:
        item = Dataset()
        _write_table(item, table, Tag.LUT_DESCRIPTOR, Tag.LUT_DATA, "LUTDescriptor", "LUTData")
        setattr(film, keyword, Sequence([item]))


def _write_table(
    film: Dataset, elements: Elements, descriptor: Tag, data: Tag, described: str, keyword: str
) -> None:
    """Write a lookup table with its entries alone; one that is damaged is left to the decoder."""
    order = ">" if elements.walk.big else "<"
    signed = descriptor in elements and elements.found[descriptor].representation == b"SS"
    value = elements.value(descriptor)[:6]
    if len(value) < 6:
        return
    numbers = np.frombuffer(value, f"{order}{'i' if signed else 'u'}2").tolist()
    content = elements.value(data)
    count = (numbers[0] & 0xFFFF) or 1 << 16
    if len(content) >= 2 * count:
        content = np.frombuffer(content[: 2 * count], f"{order}u2").astype("<u2").tobytes()
    else:
        content = content[:count]
    film.add_new(described, "SS" if signed else "US", numbers)
    film.add_new(keyword, "OW", content + bytes(len(content) % 2))


def _write_pixels(film: Dataset, image: DicomImage, frame: int) -> str:
    """Write the pixels and how they are laid out; return their transfer syntax."""
    file, laid = image.file, image.attributes
    film.SamplesPerPixel, film.PhotometricInterpretation = laid.samples, laid.photometric
    film.Rows, film.Columns = laid.rows, laid.columns
    film.BitsAllocated, film.BitsStored, film.HighBit = laid.allocated, laid.stored, laid.high
    film.PixelRepresentation = int(laid.signed)
    if laid.samples > 1:
        film.PlanarConfiguration = 0
    if file.transfer_syntax not in NATIVE and file.transfer_syntax != _RLE:
        stripped = strip_comments(compressed_frame(file.elements, laid, frame))
        film.add_new("PixelData", "OB", encapsulate([stripped]))
        film["PixelData"].is_undefined_length = True
        return file.transfer_syntax
    if laid.rows * laid.columns * laid.samples * laid.allocated // 8 > _MOST_BYTES:
        raise ImageTooLargeError(f"The frames of the DICOM image take over {_MOST_BYTES / 1e6:,.0f} MB.")
    content = _samples(image, frame)
    film.BitsAllocated = max(8, laid.allocated)
    if laid.photometric == YBR_422:
        film.PhotometricInterpretation = "YBR_FULL"
    film.add_new("PixelData", "OW" if laid.allocated > 8 else "OB", content + bytes(len(content) % 2))
    return str(ExplicitVRLittleEndian)


def _samples(image: DicomImage, frame: int) -> bytes:
    """Return the cells of a frame, without the bits beside its samples: these may hold overlays."""
    decoded = decode_frame(image.file, image.attributes, frame)
    used = np.array(((1 << decoded.bits) - 1) << decoded.shift, decoded.cells.dtype)
    cells: NDArray[Any] = decoded.cells & used
    return cells.astype(cells.dtype.newbyteorder("<")).tobytes()


def with_uid(metadata: Mapping[str, MetadataValue], content: bytes) -> Mapping[str, MetadataValue]:
    """Return metadata with the UID of its instance: one of the file's content where there is no valid one."""
    if "sop" in metadata:
        return metadata
    return {**metadata, "sop": f"2.25.{int.from_bytes(hashlib.sha256(content).digest()[:16])}"}


def group_of(metadata: Mapping[str, MetadataValue], key: bytes) -> str:
    """Return the pseudonym of the patient, else of the study, else of the instance: these stay together."""
    return str(
        metadata.get("patient") or keyed_hash(key, "study", str(metadata.get("study") or metadata["sop"]))
    )


def write_films(
    image: DicomImage,
    metadata: Mapping[str, MetadataValue],
    sop_class: str,
    most_frames: int,
    *,
    looked_at: bool = False,
) -> Iterator[bytes]:
    """Give the film of each frame in order.

    Args:
        image: The image as it came.
        metadata: As `read_attributes` returns it.
        sop_class: UID of the image's SOP class; "": it is not known.
        most_frames: Number of the first frames to write.
        looked_at: Whether a person took it from quarantine.

    Raises:
        ImageTooLargeError: A frame has more parts than any program writes.
        ImageError: One is damaged, or cannot be read.
    """
    for frame in range(min(image.attributes.frames, most_frames)):
        try:
            film = write_film(image, frame, metadata, sop_class, looked_at=looked_at)
        except UNREADABLE:
            raise ImageError("The DICOM image is damaged: its attributes or pixels cannot be read.") from None
        yield film


def look_at(film: bytes, limits: ImageLimits) -> tuple[str, bool]:
    """Decode a film, and return where there seems to be text on it, as `find_text` does.

    Returns:
        The place of the text, and whether the film's window or table shows nothing of its picture.

    Raises:
        ImageTooLargeError: The film exceeds the limits.
        ImageError: The film cannot be decoded.
    """
    decoded = decode_whole(film, limits)
    is_unfit = decoded.levels is not None and decoded.levels.unfit
    grey = as_grey(decoded.pixels)
    # The search for text needs the memory of the pixels.
    del decoded
    return find_text(grey), is_unfit

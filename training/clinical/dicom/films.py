"""A film as it is stored: a DICOM file of one frame, with allow-listed attributes and pixels only.

An instance gives a film for each frame, with the UIDs and the group of their records.
"""

import hashlib
import io
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from pydicom import Dataset, dcmread
from pydicom.dataset import FileMetaDataset
from pydicom.encaps import encapsulate
from pydicom.sequence import Sequence
from pydicom.uid import UID, ExplicitVRLittleEndian, SecondaryCaptureImageStorage
from pydicom.valuerep import format_number_as_ds

from training.clinical.dicom.attributes import UNREADABLE, read_attributes
from training.clinical.dicom.burned_text import find_text
from training.clinical.pseudonyms import keyed_hash
from training.common.errors import ImageError, ImageTooLargeError
from training.common.record import MetadataValue
from training.imaging.dicom.codestreams import strip_comments
from training.imaging.dicom.elements import NATIVE, Elements, Tag
from training.imaging.dicom.picture import (
    LUT_TAGS,
    MOST_WINDOWS,
    PALETTE_TAGS,
    RESCALE_TAGS,
    WINDOW_TAGS,
    DicomImage,
    functional_group,
    open_dicom,
    read_padding,
)
from training.imaging.dicom.pixels import (
    PALETTE,
    RLE,
    YBR_422,
    PixelAttributes,
    compressed_frame,
    decode_frame,
)
from training.imaging.images import ImageLimits, decode_whole

# A number of this program's own, made once.
IMPLEMENTATION: Final = "2.25.302486531975421096713882340187765021"
_NAME: Final = "RECOQUEST"
_LOOKED_AT: Final = "TAKEN FROM QUARANTINE"
# Attributes by the name of the metadata that they take.
_TEXTS: Final = {
    "StudyInstanceUID": "study",
    "SeriesInstanceUID": "series",
    "SOPInstanceUID": "sop",
    "PatientID": "patient",
    "AccessionNumber": "accession",
    "Modality": "modality",
    "ImageLaterality": "laterality",
    "PatientSex": "sex",
    "Manufacturer": "manufacturer",
}
_CODES: Final = {"ViewPosition": "view", "BodyPartExamined": "body_part"}
_MOST_BYTES: Final = 1 << 30
_LONGEST_CODE: Final = 16
_FUNCTIONS: Final = ("LINEAR", "LINEAR_EXACT", "SIGMOID")
# Limits of a file that is stored as it is: twice those of an image, unless settings raise them.
_MOST_INFLATED: Final = 200_000_000
_MOST_PIXELS: Final = 100_000_000
_HASH: Final = re.compile("[0-9a-f]{16}")


def write_film(
    image: DicomImage,
    frame: int,
    metadata: Mapping[str, MetadataValue],
    sop_class: str,
    *,
    looked_at: bool = False,
) -> bytes:
    """Return a DICOM file that decodes as a frame (from 0) of an image, and says nothing but its metadata.

    Args:
        image: The image as it came.
        frame: Number of the frame.
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
    film.DeidentificationMethod = [_NAME, _LOOKED_AT] if looked_at else _NAME
    elements = image.file.elements
    layout = image.attributes
    if layout.photometric == PALETTE:
        for descriptor, data in PALETTE_TAGS:
            _write_table(film, elements, descriptor, data)
    elif layout.is_grey:
        _write_grey_scale(film, elements, layout, frame)
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
            setattr(film, keyword, metadata[name])
    if "orientation" in metadata:
        film.PatientOrientation = str(metadata["orientation"]).split("\\")
    for keyword, name in _CODES.items():
        if name in metadata:
            words = str(metadata[name])
            while len(words) > _LONGEST_CODE:
                words = words.rpartition(" ")[0]
            setattr(film, keyword, words)
    if "age" in metadata:
        film.PatientAge = f"{metadata['age']:03}Y"
    if "date" in metadata:
        film.StudyDate = str(metadata["date"]).replace("-", "")
    if metadata.get("date_shifted"):
        film.LongitudinalTemporalInformationModified = "MODIFIED"


def _write_grey_scale(film: Dataset, elements: Elements, layout: PixelAttributes, frame: int) -> None:
    """Write how the frame's samples become grey levels: the first table of several, and the windows."""
    rescale = functional_group(elements, frame, Tag.PIXEL_VALUE_TRANSFORMATION_SEQUENCE, RESCALE_TAGS)
    shown = functional_group(elements, frame, Tag.FRAME_VOI_LUT_SEQUENCE, WINDOW_TAGS)
    for group, tag, most in (
        *((rescale, tag, 1) for tag in sorted(RESCALE_TAGS)),
        *((shown, tag, MOST_WINDOWS) for tag in (Tag.WINDOW_CENTER, Tag.WINDOW_WIDTH)),
    ):
        # Numbers of binary representations are whole, which pydicom does not format.
        if numbers := [format_number_as_ds(float(number)) for number in group.numbers(tag)[:most]]:
            film.add_new(tag, "DS", numbers)
    if (function := shown.text(Tag.VOI_LUT_FUNCTION).upper()) in _FUNCTIONS:
        film.VOILUTFunction = function
    for group, sequence in ((elements, Tag.MODALITY_LUT_SEQUENCE), (shown, Tag.VOI_LUT_SEQUENCE)):
        table = group.item(sequence, LUT_TAGS)
        if table is not None and Tag.LUT_DATA in table:
            item = Dataset()
            _write_table(item, table, Tag.LUT_DESCRIPTOR, Tag.LUT_DATA)
            film.add_new(sequence, "SQ", Sequence([item]))
    for tag, value in read_padding(elements, layout).items():
        film.add_new(tag, "SS" if layout.signed else "US", value)


def _write_table(film: Dataset, elements: Elements, descriptor: Tag, data: Tag) -> None:
    """Write a lookup table with its entries alone; one that is damaged is left to the decoder."""
    order = ">" if elements.walk.big else "<"
    signed = descriptor in elements and elements.by_tag[descriptor].representation == b"SS"
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
    film.add_new(descriptor, "SS" if signed else "US", numbers)
    film.add_new(data, "OW", content + bytes(len(content) % 2))


def _write_pixels(film: Dataset, image: DicomImage, frame: int) -> str:
    """Write the pixels and how they are laid out; return their transfer syntax."""
    file, layout = image.file, image.attributes
    film.SamplesPerPixel, film.PhotometricInterpretation = layout.samples, layout.photometric
    film.Rows, film.Columns = layout.rows, layout.columns
    film.BitsAllocated, film.BitsStored, film.HighBit = layout.allocated, layout.stored, layout.high
    film.PixelRepresentation = int(layout.signed)
    if layout.samples > 1:
        film.PlanarConfiguration = 0
    if file.transfer_syntax not in NATIVE and file.transfer_syntax != RLE:
        stripped = strip_comments(compressed_frame(file.elements, layout, frame))
        film.add_new("PixelData", "OB", encapsulate([stripped]))
        film["PixelData"].is_undefined_length = True
        return file.transfer_syntax
    if layout.rows * layout.columns * layout.samples * layout.allocated // 8 > _MOST_BYTES:
        raise ImageTooLargeError(f"The frames of the DICOM image take over {_MOST_BYTES / 1e6:,.0f} MB.")
    # Without the bits that belong to no sample: these may be overlays.
    decoded = decode_frame(file, layout, frame)
    used = np.array(((1 << decoded.bits) - 1) << decoded.shift, decoded.cells.dtype)
    cells: NDArray[Any] = decoded.cells & used
    content = cells.astype(cells.dtype.newbyteorder("<")).tobytes()
    film.BitsAllocated = max(8, layout.allocated)
    if layout.photometric == YBR_422:
        film.PhotometricInterpretation = "YBR_FULL"
    film.add_new("PixelData", "OW" if layout.allocated > 8 else "OB", content + bytes(len(content) % 2))
    return str(ExplicitVRLittleEndian)


def with_uid(metadata: Mapping[str, MetadataValue], content: bytes) -> Mapping[str, MetadataValue]:
    """Return metadata with the UID of its instance: one of the file's content where there is no valid one."""
    return metadata if "sop" in metadata else {**metadata, "sop": _uid(content)}


def group_of(metadata: Mapping[str, MetadataValue], key: bytes) -> str:
    """Return the pseudonym of the patient, otherwise of the study or the instance: these stay together."""
    study = str(metadata.get("study") or metadata["sop"])
    return str(metadata.get("patient") or keyed_hash(key, "study", study))


def write_films(
    image: DicomImage,
    metadata: Mapping[str, MetadataValue],
    sop_class: str,
    most_frames: int,
    *,
    looked_at: bool = False,
) -> Iterator[bytes]:
    """Give the films of the first frames, at most `most_frames`; everything else is as in `write_film`."""
    for frame in range(min(image.attributes.frames, most_frames)):
        try:
            film = write_film(image, frame, metadata, sop_class, looked_at=looked_at)
        except UNREADABLE:
            raise ImageError("The DICOM image is damaged: its attributes or pixels cannot be read.") from None
        yield film


def look_at(film: bytes, limits: ImageLimits) -> tuple[str, bool]:
    """Return what `find_text` says of a film, and whether its window or table shows nothing of its picture.

    Raises:
        ImageTooLargeError: The film exceeds the limits.
        ImageError: The film cannot be decoded.
    """
    decoded = decode_whole(film, limits)
    is_unfit = decoded.levels is not None and decoded.levels.unfit
    grey = np.asarray(decoded.pixels.convert("L"))
    # The search for text needs the memory of the pixels.
    del decoded
    return find_text(grey), is_unfit


def strip_dicom(content: bytes) -> bytes:
    """Return a DICOM image of one frame that says nothing; one that an import has written is itself.

    Raises:
        ImageTooLargeError: The image is larger than any that is stored.
        ImageError: It is no image that can be read, or its attributes or pixels are damaged.
    """
    image = open_dicom(content, max(len(content), _MOST_INFLATED), _MOST_PIXELS)
    try:
        if _is_film(content, image):
            return content
        unnamed = write_film(image, 0, {"sop": "2.25.0"}, "")
        # Equal pixels get the same UID.
        return write_film(image, 0, {"sop": _uid(unnamed)}, "")
    except (ImageError, MemoryError):
        raise
    except Exception as error:
        raise ImageError(
            "The DICOM image cannot be stored: its attributes or pixels are damaged, so that its metadata "
            "cannot be removed; save it anew."
        ) from error


def _uid(content: bytes) -> str:
    return f"2.25.{int.from_bytes(hashlib.sha256(content).digest()[:16])}"


def _is_film(content: bytes, image: DicomImage) -> bool:
    """Tell whether a file that is written anew, from what it may say, has the same bytes."""
    if image.attributes.frames > 1:
        return False
    dataset = dcmread(io.BytesIO(content), stop_before_pixels=True, force=True)
    metadata = read_attributes(dataset, key=b"", keep_dates=True)
    for name, keyword in (("patient", "PatientID"), ("accession", "AccessionNumber")):
        if name in metadata:
            metadata[name] = str(dataset.get(keyword))
            if not _HASH.fullmatch(str(metadata[name])):
                return False
    looked_at = _LOOKED_AT in str(dataset.get("DeidentificationMethod"))
    return "sop" in metadata and content == write_film(
        image, 0, metadata, str(dataset.SOPClassUID), looked_at=looked_at
    )

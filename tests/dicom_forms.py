"""DICOM images of tests in every transfer syntax, from a drawn film."""

import io
import tempfile
from pathlib import Path
from typing import Any, Final

import gdcm
import numpy as np
from numpy.typing import NDArray
from PIL import Image
from pydicom.dataelem import DataElement
from pydicom.dataset import Dataset
from pydicom.encaps import encapsulate
from pydicom.uid import (
    JPEG2000,
    UID,
    DeflatedExplicitVRLittleEndian,
    ExplicitVRBigEndian,
    ExplicitVRLittleEndian,
    ImplicitVRLittleEndian,
    JPEG2000Lossless,
    JPEGBaseline8Bit,
    JPEGExtended12Bit,
    JPEGLossless,
    JPEGLosslessSV1,
    JPEGLSLossless,
    JPEGLSNearLossless,
    RLELossless,
    SecondaryCaptureImageStorage,
    generate_uid,
)

from tests.dicom_films import with_header

Array = NDArray[Any]

ROWS: Final = 60
COLUMNS: Final = 48
NATIVE: Final = (
    ImplicitVRLittleEndian,
    ExplicitVRLittleEndian,
    ExplicitVRBigEndian,
    DeflatedExplicitVRLittleEndian,
)
LOSSY: Final = (JPEGBaseline8Bit, JPEGExtended12Bit, JPEGLSNearLossless, JPEG2000)
SYNTAXES: Final = (*NATIVE, RLELossless, JPEGLossless, JPEGLosslessSV1, JPEGLSLossless, JPEG2000Lossless)
PADDED_ROWS: Final = 8


def film(seed: int = 1) -> Array:
    """Draw a film from 0 to 1, with noise and without markers."""
    draw = np.random.default_rng(seed)
    y, x = np.mgrid[0:ROWS, 0:COLUMNS] / np.array([ROWS, COLUMNS]).reshape(2, 1, 1)
    body = np.exp(-(((x - 0.5) / 0.45) ** 4 + ((y - 0.5) / 0.48) ** 4))
    lungs = sum(np.exp(-(((x - at) / 0.15) ** 2 + ((y - 0.45) / 0.28) ** 2)) for at in (0.3, 0.7))
    values: Array = 0.15 + 0.7 * body - 0.5 * lungs + 0.1 * y + 0.01 * draw.standard_normal((ROWS, COLUMNS))
    return values.clip(0, 1)


def data_set(
    pixels: Array, *, photometric: str, stored: int, high: int | None = None, **attributes: Any
) -> Dataset:
    """Make an image of samples (H, W) or (H, W, 3) without compression, little-endian and explicit.

    Args:
        pixels: Samples in cells of the depth that is allocated; signed ones make a signed image.
        photometric: Photometric interpretation.
        stored: Bits stored.
        high: High bit; None: the one below the bits stored.
        attributes: Further attributes by keyword.
    """
    made = Dataset()
    made.SOPClassUID = SecondaryCaptureImageStorage
    made.SOPInstanceUID, made.StudyInstanceUID, made.SeriesInstanceUID = (generate_uid() for _ in range(3))
    made.PatientID, made.PatientName, made.Modality = "1", "Nobody", "OT"
    made.SamplesPerPixel = 1 if pixels.ndim == 2 else 3
    made.PhotometricInterpretation = photometric
    made.Rows, made.Columns = pixels.shape[:2]
    made.BitsAllocated, made.BitsStored = 8 * pixels.itemsize, stored
    made.HighBit = stored - 1 if high is None else high
    made.PixelRepresentation = int(pixels.dtype.kind == "i")
    if pixels.ndim == 3:
        made.PlanarConfiguration = 0
    shift = made.HighBit + 1 - stored
    cells = (pixels.astype(np.int64) & (1 << stored) - 1) << shift
    if pixels.dtype.kind == "i" and not shift:
        # The sign continues above the bits stored.
        cells = pixels.astype(np.int64) & (1 << 8 * pixels.itemsize) - 1
    made.PixelData = padded(cells.astype(f"<u{pixels.itemsize}").tobytes())
    made["PixelData"].VR = "OB" if pixels.itemsize == 1 else "OW"
    for keyword, value in attributes.items():
        setattr(made, keyword, value)
    return with_header(made)


def padded(content: bytes) -> bytes:
    """Return bytes with one that makes their number even."""
    return content + bytes(len(content) % 2)


def file_of(made: Dataset) -> bytes:
    """Return the bytes of a file."""
    file = io.BytesIO()
    syntax = made.file_meta.TransferSyntaxUID
    made.save_as(
        file,
        enforce_file_format=True,
        implicit_vr=syntax == ImplicitVRLittleEndian,
        little_endian=syntax != ExplicitVRBigEndian,
    )
    return file.getvalue()


def in_syntax(made: Dataset, syntax: UID) -> bytes:
    """Return the bytes of a file in a transfer syntax, from a data set without compression."""
    if syntax in NATIVE:
        if syntax == ExplicitVRBigEndian:
            made.walk(_swap_words)
        made.file_meta.TransferSyntaxUID = syntax
        return file_of(made)
    if syntax in (JPEGBaseline8Bit, JPEGExtended12Bit):
        return file_of(with_frames(made, syntax, [_jpeg(made)]))
    if syntax in (RLELossless, JPEG2000Lossless):
        made.compress(syntax, generate_instance_uid=False)
        return file_of(made)
    if syntax == JPEG2000:
        made.compress(syntax, j2k_psnr=[55], generate_instance_uid=False)
        return file_of(made)
    return _changed_by_gdcm(file_of(made), syntax)


def _swap_words(made: Dataset, element: DataElement) -> None:
    """Turn the bytes of words, which are written as they are given."""
    if element.VR == "OW":
        size = made.BitsAllocated // 8 if element.keyword == "PixelData" else 2
        words = np.frombuffer(element.value, f"<u{max(2, size)}")
        element.value = words.astype(words.dtype.newbyteorder(">")).tobytes()


def with_frames(made: Dataset, syntax: UID, frames: list[bytes]) -> Dataset:
    """Return an image whose pixels are compressed frames."""
    made.PixelData = encapsulate(frames)
    made["PixelData"].VR = "OB"
    made["PixelData"].is_undefined_length = True
    made.file_meta.TransferSyntaxUID = syntax
    return made


def _jpeg(made: Dataset) -> bytes:
    pixels = np.frombuffer(made.PixelData, np.uint8)[: made.Rows * made.Columns * made.SamplesPerPixel]
    shape = (made.Rows, made.Columns, made.SamplesPerPixel)
    image = Image.fromarray(pixels.reshape(shape[:2] if shape[2] == 1 else shape))
    file = io.BytesIO()
    if made.PhotometricInterpretation == "RGB":
        image.save(file, "JPEG", quality=97, keep_rgb=True)
    else:
        # The samples are luminance and chrominance already.
        image = image if image.mode == "L" else Image.fromarray(pixels.reshape(shape), "YCbCr")
        image.save(file, "JPEG", quality=97, subsampling=0)
    return file.getvalue()


def _changed_by_gdcm(content: bytes, syntax: UID) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "source.dcm"), Path(folder, "target.dcm")
        source.write_bytes(content)
        reader = gdcm.ImageReader()
        reader.SetFileName(str(source))
        assert reader.Read()
        change = gdcm.ImageChangeTransferSyntax()
        kind = gdcm.TransferSyntax.GetTSType(str(syntax))
        change.SetTransferSyntax(gdcm.TransferSyntax(kind))
        if syntax == JPEGLSNearLossless:
            codec = gdcm.JPEGLSCodec()
            codec.SetLossless(False)
            codec.SetLossyError(2)
            change.SetUserCodec(codec)
        change.SetInput(reader.GetImage())
        assert change.Change()
        writer = gdcm.ImageWriter()
        writer.SetFileName(str(target))
        writer.SetFile(reader.GetFile())
        writer.SetImage(change.GetOutput())
        assert writer.Write()
        return target.read_bytes()

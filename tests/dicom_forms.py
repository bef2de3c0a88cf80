"""The matrix of DICOM images: a drawn film or its colours in every form of file, beside what is to be seen.

The reference is computed here from the stored values, in float64 and without the code under test.
"""

import io
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any, Final

import gdcm
import numpy as np
import pydicom
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
_NATIVE: Final = (
    ImplicitVRLittleEndian,
    ExplicitVRLittleEndian,
    ExplicitVRBigEndian,
    DeflatedExplicitVRLittleEndian,
)
_LOSSY: Final = (JPEGBaseline8Bit, JPEGExtended12Bit, JPEGLSNearLossless, JPEG2000)
_SYNTAXES: Final = (*_NATIVE, RLELossless, JPEGLossless, JPEGLosslessSV1, JPEGLSLossless, JPEG2000Lossless)
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
        # The sign goes on above the bits stored.
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
    if syntax in _NATIVE:
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


@dataclass(frozen=True)
class GreyForm:
    """One form of a grey image.

    Attributes:
        syntax: Transfer syntax.
        stored: Bits stored.
        allocated: Bits allocated.
        signed: Whether samples are in two's complement.
        inverted: Whether it is MONOCHROME1.
        modality: none, rescale or table.
        voi: none, linear, exact, sigmoid, several or table.
        padding: none, value or range.
        high: High bit; None: the one below the bits stored.
    """

    syntax: UID = ExplicitVRLittleEndian
    stored: int = 12
    allocated: int = 16
    signed: bool = False
    inverted: bool = False
    modality: str = "none"
    voi: str = "linear"
    padding: str = "none"
    high: int | None = None

    @property
    def name(self) -> str:
        """All of it in one word."""
        high = "" if self.high is None else f"high{self.high}"
        kind = f"{'i' if self.signed else 'u'}{self.stored}in{self.allocated}{high}"
        photometric = f"MONOCHROME{1 if self.inverted else 2}"
        return "-".join(
            (
                self.syntax.name.split(",")[0].replace(" ", "_"),
                kind,
                photometric,
                self.modality,
                self.voi,
                self.padding,
            )
        )

    @property
    def lossy(self) -> bool:
        """True if other values come back."""
        return self.syntax in _LOSSY

    def samples(self) -> Array:
        """Return samples with their sign (H, W)."""
        top = (1 << self.stored) - 1
        picture = film()
        values: Array = np.rint((1 - picture if self.inverted else picture) * top).astype(np.int64)
        if self.signed:
            values -= 1 << self.stored - 1
        if self.padding != "none":
            first, last = self._padding()
            # Tissue has none of these values.
            values = np.where((values >= first) & (values <= last), last + 1, values)
            values[:PADDED_ROWS] = np.resize((first, last), (PADDED_ROWS, COLUMNS))
        return values

    def make(self) -> bytes:
        """Return the bytes of the file."""
        kind = f"{'i' if self.signed else 'u'}{self.allocated // 8}"
        made = data_set(
            self.samples().astype(kind),
            photometric=f"MONOCHROME{1 if self.inverted else 2}",
            stored=self.stored,
            high=self.high,
        )
        self._state(made)
        return in_syntax(made, self.syntax)

    def reference(self) -> Array:
        """Return the grey levels that are to be seen (H, W), 0 to 255, not rounded."""
        samples = self.samples()
        padding = np.zeros(samples.shape, bool)
        if self.padding != "none":
            first, last = self._padding()
            padding = (samples >= first) & (samples <= last)
        levels = self._levels(self._modality(samples), padding)
        return np.where(padding, 0.0, 255 * (1 - levels if self.inverted else levels))

    def _padding(self) -> tuple[int, int]:
        low = -(1 << self.stored - 1) if self.signed else 0
        return (low, low) if self.padding == "value" else (low, low + 3)

    def _curve(self) -> Array:
        """Entries of the modality table, one for each sample."""
        return np.rint(np.linspace(0, 1, 1 << self.stored) ** 1.5 * 4000).astype(np.int64)

    def _modality(self, samples: Array) -> Array:
        if self.modality == "rescale":
            return samples * 0.5 - 300.0
        if self.modality == "table":
            samples = self._curve()[samples + (1 << self.stored - 1 if self.signed else 0)]
        values: Array = samples.astype(np.float64)
        return values

    def _window(self) -> tuple[float, float]:
        """Centre and width around what most of the film has."""
        low, high = np.percentile(self._modality(self.samples()[PADDED_ROWS:]), (5, 95))
        return float(np.rint((low + high) / 2)), float(max(4, np.rint(high - low)))

    def _levels(self, values: Array, padding: Array) -> Array:
        centre, width = self._window()
        if self.voi in ("linear", "several"):
            return ((values - (centre - 0.5)) / (width - 1) + 0.5).clip(0, 1)
        if self.voi == "exact":
            return ((values - centre) / width + 0.5).clip(0, 1)
        if self.voi == "sigmoid":
            return 1 / (1 + np.exp(-4 * (values - centre) / width))
        if self.voi == "table":
            first, entries = self._voi_table()
            looked_up: Array = entries[(np.rint(values) - first).clip(0, len(entries) - 1).astype(int)] / 1023
            return looked_up
        if self.stored <= 8 and self.modality == "none" and not self.signed:
            return values / ((1 << self.stored) - 1)
        low, high = np.quantile(values[~padding], (0.005, 0.995))
        spread: Array = ((values - low) / (high - low)).clip(0, 1)
        return spread

    def _voi_table(self) -> tuple[int, Array]:
        centre, width = self._window()
        first = int(centre - width / 2)
        return first, np.rint(np.linspace(0, 1, int(width) + 1) ** 0.8 * 1023).astype(np.int64)

    def _state(self, made: Dataset) -> None:
        if self.modality == "rescale":
            made.RescaleSlope, made.RescaleIntercept, made.RescaleType = "0.5", "-300", "HU"
        elif self.modality == "table":
            low = -(1 << self.stored - 1) if self.signed else 0
            made.ModalityLUTSequence = [_table(low, self._curve(), 16, signed=self.signed)]
            made.ModalityLUTSequence[0].ModalityLUTType = "US"
        centre, width = self._window()
        if self.voi in ("linear", "exact", "sigmoid"):
            made.WindowCenter, made.WindowWidth = str(centre), str(width)
            if self.voi != "linear":
                made.VOILUTFunction = {"exact": "LINEAR_EXACT", "sigmoid": "SIGMOID"}[self.voi]
        elif self.voi == "several":
            made.WindowCenter, made.WindowWidth = [str(centre), "1"], [str(width), "2"]
        elif self.voi == "table":
            first, entries = self._voi_table()
            made.VOILUTSequence = [_table(first, entries, 10, signed=first < 0)]
        if self.padding != "none":
            representation = "SS" if self.signed else "US"
            first, last = self._padding()
            made.add_new("PixelPaddingValue", representation, first)
            if self.padding == "range":
                made.add_new("PixelPaddingRangeLimit", representation, last)


def _table(first: int, entries: Array, bits: int, *, signed: bool) -> Dataset:
    table = Dataset()
    table.add_new("LUTDescriptor", "SS" if signed else "US", [len(entries) % 65_536, first, bits])
    if signed and len(entries) > 32_767:
        raise ValueError("A table with a negative first value has fewer entries.")
    table.add_new("LUTData", "OW", entries.astype("<u2").tobytes())
    return table


def _grey_forms() -> Iterator[GreyForm]:
    """Every pair of a transfer syntax and another property, in a few dozen forms."""
    plain = GreyForm()
    vois = cycle(("linear", "exact", "sigmoid", "several", "table", "none"))
    modalities = cycle(("none", "rescale", "none", "table"))
    paddings = cycle(("none", "value", "none", "range", "none"))
    for syntax in _SYNTAXES:
        for stored, signed, inverted in (
            (8, False, True),
            (10, True, False),
            (12, False, False),
            (12, True, True),
        ):
            allocated = 8 if stored == 8 else 16
            yield replace(
                plain,
                syntax=syntax,
                stored=stored,
                allocated=allocated,
                signed=signed,
                inverted=inverted,
                modality=next(modalities),
                voi=next(vois),
                padding=next(paddings),
            )
        for stored, signed, inverted in (
            (14, False, True),
            (15, True, False),
            (16, False, False),
            (16, True, True),
        ):
            yield replace(
                plain,
                syntax=syntax,
                stored=stored,
                signed=signed,
                inverted=inverted,
                modality="rescale" if signed else "none",
                voi=next(vois),
                padding=next(paddings),
            )
    for syntax in _LOSSY:
        for inverted in (False, True):
            yield replace(plain, syntax=syntax, stored=8, allocated=8, inverted=inverted, voi=next(vois))
    for syntax in (JPEGLSNearLossless, JPEG2000):
        yield replace(plain, syntax=syntax, voi="sigmoid")
        yield replace(plain, syntax=syntax, stored=16, inverted=True)
    yield replace(plain, high=15)
    yield replace(plain, high=13, signed=True, inverted=True)
    yield replace(plain, stored=10, high=11, syntax=RLELossless)
    yield replace(plain, stored=8, allocated=16, syntax=JPEGLosslessSV1)
    yield replace(plain, stored=20, allocated=32)
    yield replace(plain, stored=32, allocated=32, signed=True, inverted=True, voi="none")
    yield replace(plain, stored=24, allocated=32, syntax=ExplicitVRBigEndian, padding="range")
    yield replace(plain, stored=8, allocated=8, signed=True)


GREY_FORMS: Final = tuple(_grey_forms())


@dataclass(frozen=True)
class ColourForm:
    """One form of a colour image.

    Attributes:
        name: Of the form.
        make: Returns the bytes of the file.
        tolerance: Most that a level may differ.
    """

    name: str
    make: Callable[[], bytes] = field(repr=False)
    tolerance: float = 1.0


def colours() -> Array:
    """Return smooth colours (H, W, 3) of 8 bits."""
    y, x = np.mgrid[0:ROWS, 0:COLUMNS] / np.array([ROWS, COLUMNS]).reshape(2, 1, 1)
    planes = (0.1 + 0.8 * film(), 0.2 + 0.6 * x, 0.9 - 0.7 * y)
    pixels: Array = np.rint(255 * np.stack(planes, axis=-1)).astype(np.uint8)
    return pixels


def ybr(rgb: Array) -> Array:
    """Return luminance and chrominance (PS3.3, section C.7.6.3.1.2)."""
    weights = np.array([[0.299, 0.587, 0.114], [-0.1687, -0.3313, 0.5], [0.5, -0.4187, -0.0813]])
    pixels: Array = np.rint(rgb @ weights.T + (0, 128, 128)).clip(0, 255).astype(np.uint8)
    return pixels


def _rgb(syntax: UID, *, planar: bool = False, photometric: str = "RGB") -> bytes:
    pixels = colours() if photometric == "RGB" else ybr(colours())
    made = data_set(pixels, photometric=photometric, stored=8)
    if planar:
        made.PixelData = padded(pixels.transpose(2, 0, 1).tobytes())
        made.PlanarConfiguration = 1
    return in_syntax(made, syntax)


def _halved() -> bytes:
    pixels = ybr(colours())
    pairs = pixels.reshape(ROWS, COLUMNS // 2, 2, 3)
    shared = pairs[..., 1:].mean(axis=2)
    cells = np.concatenate((pairs[..., 0], np.rint(shared)), axis=-1).astype(np.uint8)
    made = data_set(pixels, photometric="YBR_FULL_422", stored=8)
    made.PixelData = cells.tobytes()
    return in_syntax(made, ExplicitVRLittleEndian)


def _words() -> bytes:
    made = data_set(colours(), photometric="RGB", stored=8)
    made["PixelData"].VR = "OW"
    return in_syntax(made, ExplicitVRBigEndian)


def _palette(bits: int, syntax: UID = ExplicitVRLittleEndian, *, entry_bits: int = 16) -> bytes:
    """An image of a palette that has the colours of the picture, coarser."""
    image = Image.fromarray(colours()).quantize(200)
    palette = np.array(image.getpalette("RGB"), np.uint8).reshape(-1, 3)
    places = np.asarray(image).astype(f"u{bits // 8}")
    made = data_set(places, photometric="PALETTE COLOR", stored=bits)
    for name, channel in zip(("Red", "Green", "Blue"), palette.T, strict=True):
        entries = channel.astype("<u2") * 257 if entry_bits == 16 else channel.astype("<u2")
        made.add_new(f"{name}PaletteColorLookupTableDescriptor", "US", [len(channel), 0, entry_bits])
        made.add_new(f"{name}PaletteColorLookupTableData", "OW", entries.tobytes())
    return in_syntax(made, syntax)


def _colour_forms() -> Iterator[ColourForm]:
    for syntax in (*_SYNTAXES, *_LOSSY):
        name = syntax.name.split(",")[0]
        yield ColourForm(f"RGB {name}", partial(_rgb, syntax), 12.0 if syntax in _LOSSY else 1.0)
    for syntax in _NATIVE:
        yield ColourForm(f"RGB in planes {syntax.name}", partial(_rgb, syntax, planar=True))
    for syntax in (ExplicitVRLittleEndian, RLELossless, JPEGLSLossless, JPEGLossless):
        make = partial(_rgb, syntax, photometric="YBR_FULL")
        yield ColourForm(f"YBR_FULL {syntax.name.split(',')[0]}", make, 3.0)
    yield ColourForm(
        "YBR_FULL in planes", partial(_rgb, ExplicitVRLittleEndian, planar=True, photometric="YBR_FULL"), 3.0
    )
    yield ColourForm("YBR_FULL JPEG", partial(_rgb, JPEGBaseline8Bit, photometric="YBR_FULL"), 12.0)
    yield ColourForm("YBR_FULL_422 JPEG", partial(_rgb, JPEGBaseline8Bit, photometric="YBR_FULL_422"), 12.0)
    yield ColourForm("YBR_FULL_422", _halved, 8.0)
    yield ColourForm(
        "YBR_FULL_422 that is not shared",
        partial(_rgb, ExplicitVRLittleEndian, photometric="YBR_FULL_422"),
        3.0,
    )
    for bits in (8, 16):
        yield ColourForm(f"palette of {bits} bits", partial(_palette, bits), 24.0)
    yield ColourForm("palette in runs", partial(_palette, 8, RLELossless), 24.0)
    yield ColourForm("palette of 8-bit colours", partial(_palette, 8, entry_bits=8), 24.0)
    yield ColourForm("palette big-endian", partial(_palette, 16, ExplicitVRBigEndian), 24.0)
    yield ColourForm("words big-endian", _words, 1.0)


COLOUR_FORMS: Final = tuple(_colour_forms())


def read_back(content: bytes) -> Dataset:
    """Return a file as a data set that can be changed and written again."""
    return pydicom.dcmread(io.BytesIO(content))

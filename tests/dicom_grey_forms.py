"""The matrix of grey DICOM images, beside the grey levels that are to be seen.

The reference is computed here from the stored values, in float64 and without the code under test.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Final

import numpy as np
from pydicom.dataset import Dataset
from pydicom.uid import (
    JPEG2000,
    UID,
    ExplicitVRBigEndian,
    ExplicitVRLittleEndian,
    JPEGLosslessSV1,
    JPEGLSNearLossless,
    RLELossless,
)

from tests.dicom_forms import COLUMNS, LOSSY, PADDED_ROWS, SYNTAXES, Array, data_set, film, in_syntax


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
        return self.syntax in LOSSY

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
    for syntax in SYNTAXES:
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
    for syntax in LOSSY:
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

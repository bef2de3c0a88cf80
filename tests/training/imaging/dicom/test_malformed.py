"""Malformed DICOM files are refused with a reason, or decoded and imported, in little time and memory."""

import random
import struct
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydicom.dataset import Dataset
from pydicom.uid import (
    UID,
    DeflatedExplicitVRLittleEndian,
    DigitalXRayImageStorageForPresentation,
    ExplicitVRLittleEndian,
    ImplicitVRLittleEndian,
    JPEG2000Lossless,
    JPEGBaseline8Bit,
    JPEGLosslessSV1,
    JPEGLSLossless,
    RLELossless,
)

from tests.dicom_films import uid
from tests.dicom_forms import Array, data_set, file_of, film, in_syntax
from training.common.errors import ImageError
from training.imaging.images import ImageLimits, decode_whole
from training.imaging.processes import file_decoder
from training.imaging.processes.file_decoder import FileDecoder
from training.importing import dicom
from training.importing.dicom import SourceFile
from training.importing.layouts import Source

_SYNTAXES: Final = (
    ExplicitVRLittleEndian,
    ImplicitVRLittleEndian,
    DeflatedExplicitVRLittleEndian,
    RLELossless,
    JPEGBaseline8Bit,
    JPEGLosslessSV1,
    JPEGLSLossless,
    JPEG2000Lossless,
)
_UNDEFINED: Final = b"\xff\xff\xff\xff"
_ITEM: Final = b"\xfe\xff\x00\xe0"
_ENDS: Final = b"\xfe\xff\x0d\xe0\0\0\0\0\xfe\xff\xdd\xe0\0\0\0\0"
_SEQUENCE: Final = b"\x40\0\x75\x02SQ\0\0"
# Films of 50 megapixels take 650 MB.
_MEMORY_BYTES: Final = 800_000_000
_CPU_S: Final = 2
_INTERESTING: Final = (
    *(0, 1, 2, 7, 8, 9, 12, 15, 16, 17, 31, 32, 33, 64, 255, 256, 32_767, 32_768, 65_534, 65_535),
)


def _radiograph(pixels: Array, *, photometric: str, stored: int, **attributes: Any) -> Dataset:
    """Make an image that an import takes for a film."""
    attributes["SOPClassUID"] = DigitalXRayImageStorageForPresentation
    attributes["SOPInstanceUID"], attributes["StudyInstanceUID"] = uid("malformed"), uid("malformed", "study")
    attributes["SeriesInstanceUID"], attributes["Modality"] = uid("malformed", "series"), "DX"
    return data_set(pixels, photometric=photometric, stored=stored, **attributes)


@cache
def whole(syntax: UID) -> bytes:
    """Return a good film in a transfer syntax."""
    eight = syntax == JPEGBaseline8Bit
    top = 255 if eight else 4095
    pixels = np.rint(film() * top).astype("u1" if eight else "u2")
    made = _radiograph(pixels, photometric="MONOCHROME2", stored=8 if eight else 12)
    made.WindowCenter, made.WindowWidth = str(top // 2), str(top)
    table = Dataset()
    table.add_new("LUTDescriptor", "US", [256, 0, 12])
    table.add_new("LUTData", "OW", np.arange(256).astype("<u2").tobytes())
    made.VOILUTSequence = [table]
    made.add_new("PixelPaddingValue", "US", 0)
    return in_syntax(made, syntax)


def _start(content: bytes) -> int:
    """Return the first byte of the data set."""
    (length,) = struct.unpack_from("<I", content, 140)
    return 144 + int(length)


def _head(syntax: UID = ExplicitVRLittleEndian) -> bytes:
    content = whole(syntax)
    return content[: _start(content)]


def _lying_length(draw: random.Random, _: UID) -> bytes:
    """An element with a short length whose length is another."""
    content = bytearray(whole(ExplicitVRLittleEndian))
    place, places = _start(bytes(content)), []
    while place + 8 < len(content):
        is_long = bytes(content[place + 4 : place + 6]) in (b"OB", b"OW", b"SQ", b"UN")
        at, width, value = (place + 8, 4, place + 12) if is_long else (place + 6, 2, place + 8)
        places.append((at, width))
        place = value + int.from_bytes(content[at : at + width], "little")
    at, width = draw.choice(places)
    top = 256**width
    length = draw.choice((0, 1, 3, 7, top // 2, top - 2, top - 1, draw.randrange(top)))
    content[at : at + width] = length.to_bytes(width, "little")
    return bytes(content)


def _nested(draw: random.Random, _: UID) -> bytes:
    depth = draw.choice((3, 30, 40, 500, 20_000, 200_000))
    opened = (_SEQUENCE + _UNDEFINED + _ITEM + _UNDEFINED) * depth
    closed = _ENDS * draw.choice((0, depth // 2, depth))
    content = whole(ExplicitVRLittleEndian)
    return content[: _start(content)] + opened + closed + content[_start(content) :]


def _many(draw: random.Random, _: UID) -> bytes:
    """Elements, items or fragments up to the limit of bytes."""
    count = draw.choice((100_000, 2_000_000))
    kind = draw.randrange(4)
    if kind == 0:
        return _head() + b"\x09\0\x10\0LO\0\0" * count
    if kind == 1:
        return _head() + b"\x09\0\x10\0\0\0\0\0" * count
    if kind == 2:
        return _head() + _SEQUENCE + _UNDEFINED + (_ITEM + bytes(4)) * count
    content = whole(RLELossless)
    place = content.index(b"\xe0\x7f\x10\0OB") + 12
    return content[:place] + (_ITEM + bytes(4)) * count


@cache
def _deflated(unit: bytes, megabytes: int) -> bytes:
    deflater = zlib.compressobj(1, zlib.DEFLATED, -15)
    block = unit * ((1 << 20) // len(unit))
    return b"".join(deflater.compress(block) for _ in range(megabytes)) + deflater.flush()


def _bomb(draw: random.Random, _: UID) -> bytes:
    unit = draw.choice((bytes(8), b"\x09\0\x10\0LO\0\0", _ITEM * 2))
    return _head(DeflatedExplicitVRLittleEndian) + _deflated(unit, draw.choice((30, 300)))


def _attributes(draw: random.Random, syntax: UID) -> bytes:
    """Change numbers of the image pixel module."""
    content = bytearray(whole(syntax if syntax != DeflatedExplicitVRLittleEndian else RLELossless))
    for _ in range(draw.choice((1, 2, 4))):
        number = draw.choice((0x02, 0x06, 0x10, 0x11, 0x100, 0x101, 0x102, 0x103, 0x120))
        place = content.find(b"\x28\0" + number.to_bytes(2, "little"))
        if place > 0:
            content[place + 8 : place + 10] = draw.choice(_INTERESTING).to_bytes(2, "little")
    return bytes(content)


def _frames(draw: random.Random, syntax: UID) -> bytes:
    made = _radiograph(np.zeros((8, 8), np.uint16), photometric="MONOCHROME2", stored=12)
    if syntax == RLELossless:
        made.compress(RLELossless, generate_instance_uid=False)
    made.NumberOfFrames = "1111111111"
    numbers = (b"2", b"1000", b"19999", b"2147483647", b"9999999999", b"-1", b"0", b"1e300", b"1.5")
    return file_of(made).replace(b"1111111111", draw.choice(numbers).ljust(10))


def _offsets(draw: random.Random, _: UID) -> bytes:
    """Tables of offsets that go round, back or nowhere."""
    frames = draw.choice((2, 3, 50))
    made = _radiograph(
        np.zeros((8, 8), np.uint8), photometric="MONOCHROME2", stored=8, NumberOfFrames=str(frames)
    )
    made.file_meta.TransferSyntaxUID = draw.choice((RLELossless, JPEGLSLossless))
    values = [
        draw.choice((0, 4, 8, 16, 2**31, 2**32 - 1)) for _ in range(draw.choice((frames, frames - 1, 5000)))
    ]
    parts = [np.array(values, "<u4").tobytes(), *(bytes(draw.choice((0, 2, 70))) for _ in range(7))]
    made.PixelData = b"".join(_ITEM + len(part).to_bytes(4, "little") + part for part in parts)
    made["PixelData"].VR, made["PixelData"].is_undefined_length = "OB", True
    made.ExtendedOffsetTable = np.array(values, "<u8").tobytes()
    made.ExtendedOffsetTableLengths = np.array(values, "<u8").tobytes()
    return file_of(made)


def _codestream(draw: random.Random, _: UID) -> bytes:
    """Change bytes at the beginning of a compressed frame."""
    syntax = draw.choice((RLELossless, JPEGBaseline8Bit, JPEGLosslessSV1, JPEGLSLossless, JPEG2000Lossless))
    content = bytearray(whole(syntax))
    frame = content.rindex(b"\xe0\x7f\x10\0OB") + 12
    frame += 8 + int.from_bytes(content[frame + 4 : frame + 8], "little") + 8
    for _change in range(draw.choice((1, 2, 8))):
        place = draw.randrange(frame, min(frame + draw.choice((64, 120, 700)), len(content)))
        content[place] = draw.choice((0, 1, 16, 127, 128, 255, draw.randrange(256)))
    return bytes(content)


def _tiles(draw: random.Random, _: UID) -> bytes:
    """A large image of JPEG 2000 in small tiles, precincts or code-blocks."""
    content = bytearray(whole(JPEG2000Lossless))
    for number, side in ((0x10, 7000), (0x11, 7000)):
        place = content.index(b"\x28\0" + number.to_bytes(2, "little") + b"US")
        content[place + 8 : place + 10] = side.to_bytes(2, "little")
    size = content.index(b"\xff\x4f\xff\x51")
    tile = draw.choice((1, 16, 7000))
    struct.pack_into(">8I", content, size + 8, 7000, 7000, 0, 0, tile, tile, 0, 0)
    coding = content.index(b"\xff\x52", size)
    content[coding + 9] = draw.choice((0, 5, 32, 33, 255))
    content[coding + 10] = content[coding + 11] = draw.choice((0, 4, 200))
    content[coding + 4] = draw.choice((0, 1))
    return bytes(content)


def _runs(draw: random.Random, _: UID) -> bytes:
    """Runs of more bytes than the image, or segments that overlap."""
    made = _radiograph(np.zeros((7000, 7000), np.uint8), photometric="MONOCHROME2", stored=8)
    header = struct.pack(
        "<16I", draw.choice((1, 2, 15, 16, 2**32 - 1)), *[draw.choice((0, 64, 65, 2**31))] * 15
    )
    runs = draw.choice((b"\x81\0", b"\xff\0", b"\x80", b"\0\1")) * draw.choice((10, 400_000, 5_000_000))
    part = header + runs
    made.PixelData = _ITEM + bytes(4) + _ITEM + len(part).to_bytes(4, "little") + part
    made["PixelData"].VR, made["PixelData"].is_undefined_length = "OB", True
    made.file_meta.TransferSyntaxUID = RLELossless
    return file_of(made)


def _values(draw: random.Random, _: UID) -> bytes:
    """Windows, rescales and tables of numbers that are none, or too large."""
    content = whole(ExplicitVRLittleEndian)
    if draw.random() < 0.5:
        descriptor = content.index(b"\x28\0\x02\x30US")
        numbers = [draw.choice(_INTERESTING) for _ in range(3)]
        return content[: descriptor + 8] + struct.pack("<3H", *numbers) + content[descriptor + 14 :]
    made = _radiograph((film() * 4095).astype(np.uint16), photometric="MONOCHROME1", stored=12)
    made.WindowCenter, made.WindowWidth = "11111111", "22222222"
    made.RescaleSlope, made.RescaleIntercept = "33333333", "44444444"
    content = file_of(made)
    for mark in (b"11111111", b"22222222", b"33333333", b"44444444"):
        text = draw.choice(
            (b"1e308", b"-1e308", b"nan", b"inf", b"0", b"1e-300", b"\\\\\\", b"\xff\xfe", b"1_0")
        )
        content = content.replace(mark, text.ljust(8))
    return content


_KINDS: Final[tuple[Callable[[random.Random, UID], bytes], ...]] = (
    *(_lying_length, _nested, _many, _bomb, _attributes, _frames, _offsets, _codestream, _tiles, _runs),
    _values,
)


def _malformed_files(folder: Path, count: int) -> Iterator[Path]:
    """Write files, every kind as often as others."""
    draw = random.Random(2)
    for number in range(count):
        kind = _KINDS[number % len(_KINDS)]
        path = folder / f"{number:04}{kind.__name__}"
        path.write_bytes(kind(draw, _SYNTAXES[number // len(_KINDS) % len(_SYNTAXES)]))
        yield path


def _check(outcomes: dict[Path, str]) -> None:
    """Check that most files are refused, each with a sentence, and none for what it costs."""
    refused = {path: reason for path, reason in outcomes.items() if reason}
    # Some damage is in what decides no pixel.
    assert len(outcomes) / 2 < len(refused) < len(outcomes)
    for path, reason in refused.items():
        assert len(reason) < 300 and "object" not in reason, f"{path.name}: {reason}"
        for cost in ("more memory", "seconds of work", "broke down", "minutes"):
            assert cost not in reason, f"{path.name}: {reason}"


@pytest.mark.slow
def test_hundreds_of_malformed_files_are_refused_or_decoded_in_little_time_and_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_decoder, "_MEMORY_BYTES", _MEMORY_BYTES)
    monkeypatch.setattr(file_decoder, "_CPU_S", _CPU_S)
    outcomes = {}
    with FileDecoder(1, isolated=True) as decoder:
        for path in _malformed_files(tmp_path, 440):
            try:
                decoder.decode(path)
                outcomes[path] = ""
            except ImageError as error:
                outcomes[path] = str(error)
                assert str(error).endswith(".")
    _check(outcomes)
    limit = f"{ImageLimits().max_dicom_bytes / 1e6:,.1f} MB"
    assert f"The DICOM file inflates to over {limit}, the limit of an image file." in outcomes.values()


@pytest.mark.slow
def test_hundreds_of_malformed_files_are_refused_or_imported_in_little_time_and_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dicom, "MEMORY_BYTES", _MEMORY_BYTES)
    # The first file of a process also loads pydicom.
    monkeypatch.setattr(dicom, "_CPU_S", 3 * _CPU_S)
    (tmp_path / "files").mkdir()
    (tmp_path / "images").mkdir()
    paths = list(_malformed_files(tmp_path / "files", 440))
    files = [SourceFile(number, path) for number, path in enumerate(paths)]
    found = list(dicom.examine_all(files, Source(tmp_path / "files", tmp_path, key=b"key")))
    assert any(examined.films for examined in found)
    _check({path: examined.refused for path, examined in zip(paths, found, strict=True)})


@pytest.mark.slow
@given(
    syntax=st.sampled_from(_SYNTAXES),
    edits=st.lists(st.tuples(st.integers(132, 10_000), st.binary(min_size=1, max_size=4)), max_size=12),
    end=st.integers(132, 20_000),
)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_damage_is_an_image_error_or_none(syntax: UID, edits: list[tuple[int, bytes]], end: int) -> None:
    content = bytearray(whole(syntax))
    for place, patch in edits:
        place %= len(content)
        content[place : place + len(patch)] = patch
    try:
        decoded = decode_whole(bytes(content[:end]))
    except ImageError as error:
        assert str(error).endswith(".")
    else:
        assert decoded.pixels.size == (decoded.width, decoded.height)

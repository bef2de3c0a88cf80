"""DICOM files that no program should write, from a seed: cut, lying, nested, inflating, cyclic."""

import random
import struct
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final

import numpy as np
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
    MediaStorageDirectoryStorage,
    RLELossless,
)

from tests.dicom_films import uid
from tests.dicom_forms import Array, data_set, file_of, film, in_syntax

SYNTAXES: Final = (
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
_REPRESENTATIONS: Final = (*b"SQ UN OW DS IS US FD UL PN ZZ ob".split(), b"\0\0")
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


def _truncated(draw: random.Random, syntax: UID) -> bytes:
    content = whole(syntax)
    return content[: draw.randrange(130, len(content))]


def _flipped(draw: random.Random, syntax: UID) -> bytes:
    content = bytearray(whole(syntax))
    for _ in range(draw.choice((1, 4, 30))):
        content[draw.randrange(132, len(content))] = draw.randrange(256)
    return bytes(content)


def _places(content: bytes) -> list[int]:
    """Return where elements of the data set begin, with short lengths."""
    place, places = _start(content), []
    while place + 8 < len(content):
        places.append(place)
        long = content[place + 4 : place + 6] in (b"OB", b"OW", b"SQ", b"UN")
        size = struct.unpack_from("<I" if long else "<H", content, place + (8 if long else 6))[0]
        place += (12 if long else 8) + size
    return places


def _lying_length(draw: random.Random, _: UID) -> bytes:
    content = bytearray(whole(ExplicitVRLittleEndian))
    place = draw.choice(_places(bytes(content)))
    if bytes(content[place + 4 : place + 6]) in (b"OB", b"OW", b"SQ"):
        lengths = (0, 1, 7, 2**31, 2**32 - 2, 2**32 - 1, draw.randrange(2**32))
        content[place + 8 : place + 12] = draw.choice(lengths).to_bytes(4, "little")
    else:
        content[place + 6 : place + 8] = draw.choice((0, 1, 3, 65_535, draw.randrange(65_536))).to_bytes(
            2, "little"
        )
    return bytes(content)


def _wrong_representation(draw: random.Random, _: UID) -> bytes:
    content = bytearray(whole(ExplicitVRLittleEndian))
    for place in draw.sample(_places(bytes(content)), draw.choice((1, 3))):
        content[place + 4 : place + 6] = draw.choice(_REPRESENTATIONS)
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


def _directory(draw: random.Random, _: UID) -> bytes:
    """A directory whose records come after themselves."""
    record = Dataset()
    record.OffsetOfTheNextDirectoryRecord = draw.choice((0, 132, 400, 2**32 - 1))
    record.OffsetOfReferencedLowerLevelDirectoryEntity = draw.choice((0, 132, 400))
    record.DirectoryRecordType = "IMAGE"
    made = Dataset()
    made.file_meta = _radiograph(np.zeros((2, 2), np.uint8), photometric="MONOCHROME2", stored=8).file_meta
    made.SOPClassUID = made.file_meta.MediaStorageSOPClassUID = MediaStorageDirectoryStorage
    made.OffsetOfTheFirstDirectoryRecordOfTheRootDirectoryEntity = 400
    made.DirectoryRecordSequence = [record] * draw.choice((1, 100))
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


def _garbage(draw: random.Random, _: UID) -> bytes:
    rest = draw.randbytes(draw.choice((0, 1, 20, 5000)))
    return draw.choice((bytes(128) + b"DICM", _head(), b"\2\0\0\0UL\4\0", b"\x08\0\5\0CS")) + rest


_KINDS: Final[tuple[Callable[[random.Random, UID], bytes], ...]] = (
    *(_truncated, _flipped, _lying_length, _wrong_representation, _nested, _many, _bomb, _attributes),
    *(_frames, _offsets, _directory, _codestream, _tiles, _runs, _values, _garbage),
)


def malformed_files(count: int, seed: int = 0) -> Iterator[tuple[str, bytes]]:
    """Give names and bytes of files, every kind as often as others."""
    draw = random.Random(seed)
    for number in range(count):
        kind = _KINDS[number % len(_KINDS)]
        syntax = SYNTAXES[number // len(_KINDS) % len(SYNTAXES)]
        yield f"{number:04}{kind.__name__}", kind(draw, syntax)

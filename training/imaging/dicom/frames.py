"""The bytes of one frame: a part of native pixels, or the fragments that hold its compressed form."""

import struct
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from training.common.errors import ImageError
from training.imaging.dicom.attributes import YBR_422, PixelAttributes
from training.imaging.dicom.elements import Elements
from training.imaging.dicom.tags import Tag

_STARTS: Final = (b"\xff\xd8\xff", b"\xff\x4f\xff\x51")


@dataclass(frozen=True, slots=True)
class NativeFrame:
    """A frame without compression.

    Attributes:
        content: The bytes that have it.
        skipped: Bits of the first byte that belong to the frame before.
        halved: Whether two pixels share their chrominance.
    """

    content: memoryview | bytes
    skipped: int
    halved: bool


def native_frame(elements: Elements, attributes: PixelAttributes, frame: int) -> NativeFrame:
    """Return the bytes of a native frame (PS3.5, section 8.1).

    Raises:
        ImageError: The file has fewer bytes than its frames take.
    """
    element = elements.found[Tag.PIXEL_DATA]
    there = 0 if element.undefined else element.end - element.start
    bits = attributes.rows * attributes.columns * attributes.samples * attributes.allocated
    # Some programs write all colours of each pixel, and say otherwise.
    halved = attributes.photometric == YBR_422 and there < attributes.frames * bits // 8
    bits = bits * 2 // 3 if halved else bits
    needed = -(-bits * attributes.frames // 8)
    if needed > there:
        raise ImageError(
            f"The DICOM image is damaged: {attributes.frames:,} x {attributes.columns} x {attributes.rows} "
            f"pixels take {needed:,} bytes; it has {there:,}."
        )
    start, end = frame * bits // 8, -(-(frame + 1) * bits // 8)
    pixels = memoryview(elements.walk.content)[element.start : element.end]
    if elements.walk.big and element.representation == b"OW" and attributes.allocated <= 8:
        # Bytes are parts of words (PS3.5, section 8.1.1), which an odd frame shares with its neighbours.
        words = np.frombuffer(pixels[start // 2 * 2 : (end + 1) // 2 * 2], np.uint8)
        paired = len(words) // 2 * 2
        swapped = np.concatenate((words[:paired].reshape(-1, 2)[:, ::-1].reshape(-1), words[paired:]))
        return NativeFrame(swapped[start % 2 :][: end - start].tobytes(), frame * bits % 8, halved)
    return NativeFrame(pixels[start:end], frame * bits % 8, halved)


def compressed_frame(elements: Elements, attributes: PixelAttributes, frame: int) -> bytes:
    """Return the bytes of a compressed frame (PS3.5, section A.4).

    Raises:
        ImageTooLargeError: The file has too many fragments.
        ImageError: The fragments cannot be followed, or not be told to which frame they belong.
    """
    element = elements.found[Tag.PIXEL_DATA]
    if not element.undefined:
        raise ImageError("The DICOM image is damaged: its compressed pixels have no fragments.")
    table, *fragments = [*elements.walk.items(element)] or [(0, 0)]
    if not fragments:
        raise ImageError("The DICOM image is damaged: its compressed pixels have no fragments.")
    content = elements.walk.content
    first, last = _span(elements, content[slice(*table)], fragments, attributes.frames, frame)
    return b"".join(content[slice(*fragment)] for fragment in fragments[first:last])


def _span(
    elements: Elements, table: bytes, fragments: list[tuple[int, int]], frames: int, frame: int
) -> tuple[int, int]:
    """Return the first fragment of a frame and the one after its last."""
    if frames == 1:
        return 0, len(fragments)
    if frames == len(fragments):
        return frame, frame + 1
    places = {start - fragments[0][0]: number for number, (start, _) in enumerate(fragments)}
    for offsets in (_numbers(elements.value(Tag.EXTENDED_OFFSET_TABLE), "Q"), _numbers(table, "I")):
        firsts = [places[offset] for offset in offsets if offset in places]
        if len(offsets) == len(firsts) == frames and all(one < other for one, other in pairwise(firsts)):
            return firsts[frame], [*firsts, len(fragments)][frame + 1]
    # Without a table that can be true, a codestream begins each frame.
    content = elements.walk.content
    firsts = [number for number, (start, _) in enumerate(fragments) if content.startswith(_STARTS, start)]
    if len(firsts) == frames and firsts[0] == 0:
        return firsts[frame], [*firsts, len(fragments)][frame + 1]
    raise ImageError(
        f"The DICOM image is damaged: it has {len(fragments):,} fragments, which cannot be told apart into "
        f"{frames:,} frames."
    )


def _numbers(table: bytes, form: str) -> tuple[int, ...]:
    count = len(table) // struct.calcsize(f"<{form}")
    return struct.unpack(f"<{count}{form}", table[: count * struct.calcsize(f"<{form}")])

"""Counts the frames of GIF and TIFF files from their structure alone, decoding nothing."""

import struct

from training.data.decoding.structure import colour_table_size


def count_gif_frames(content: bytes, most: int) -> int:
    """Count the image blocks of a GIF file (GIF89a, sections 17 to 26), at most one more than `most`."""
    place = 13 + colour_table_size(content[10])
    frames = 0
    while place < len(content) and frames <= most:
        kind = content[place]
        if kind == 0x2C and place + 9 < len(content):
            frames += 1
            place += 11 + colour_table_size(content[place + 9])
        elif kind == 0x21:
            place += 2
        else:
            break
        while place < len(content) and content[place]:
            place += 1 + content[place]
        place += 1
    return max(1, frames)


def count_tiff_pages(content: bytes, most: int) -> int:
    """Count the image file directories of a TIFF file (TIFF 6.0, section 2), at most one more than `most`."""
    order = "<" if content[:2] == b"II" else ">"
    big = struct.unpack_from(f"{order}H", content, 2)[0] == 43
    number, pointer, entry, first = ("Q", "Q", 20, 8) if big else ("H", "I", 12, 4)
    seen: set[int] = set()
    try:
        place = struct.unpack_from(order + pointer, content, first)[0]
        while place and place not in seen and len(seen) <= most:
            entries = struct.unpack_from(order + number, content, place)[0]
            seen.add(place)
            place = struct.unpack_from(
                order + pointer, content, place + struct.calcsize(f"={number}") + entry * entries
            )[0]
    except (struct.error, OverflowError):
        # The file ends before the chain does; the pages up to there count.
        pass
    return max(1, len(seen))

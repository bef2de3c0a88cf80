"""GIF files without their metadata: comments, texts and extensions of applications (GIF89a)."""

from typing import Final

from index.files.metadata.errors import metadata_error
from training.data.decoding.structure import colour_table_size

_IMAGE, _EXTENSION = 0x2C, 0x21
_TRAILER: Final = b";"
_GRAPHIC_CONTROL, _APPLICATION = 0xF9, 0xFF
# Loops of animations, and colour profiles.
_KEPT_APPLICATIONS: Final = (b"\x0bNETSCAPE2.0", b"\x0bANIMEXTS1.0", b"\x0bICCRGBG1012")
_DESCRIPTOR_BYTES: Final = 11
_MOST_BLOCKS: Final = 400_000


def strip_gif(content: bytes) -> bytes:
    """Return the file with its frames, their times and loops, its colour profile, and nothing else.

    Raises:
        ImageError: Its blocks cannot be followed.
    """
    length = len(content)
    place = 13 + colour_table_size(content[10]) if length > 10 else length
    kept, images, blocks = [content[:place]], 0, 0
    while place < length and content[place] in (_IMAGE, _EXTENSION):
        start = place
        is_image = content[place] == _IMAGE
        if is_image:
            flags = content[place + 9] if place + 9 < length else 0
            place += _DESCRIPTOR_BYTES + colour_table_size(flags)
        else:
            place += 2
        while place < length and content[place]:
            place += 1 + content[place]
            blocks += 1
        place += 1
        blocks += 1
        if blocks > _MOST_BLOCKS:
            raise metadata_error("GIF", f"it has over {_MOST_BLOCKS:,} blocks")
        images += is_image
        if is_image or _is_kept(content, start):
            kept.append(content[start:place])
    if not images:
        raise metadata_error("GIF", "no picture is found in it")
    return b"".join([*kept, _TRAILER])


def _is_kept(content: bytes, start: int) -> bool:
    kind = content[start + 1] if start + 1 < len(content) else 0
    if kind == _APPLICATION:
        return content.startswith(_KEPT_APPLICATIONS, start + 2)
    return kind == _GRAPHIC_CONTROL

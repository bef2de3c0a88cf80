"""The first bytes of a DICOM file (PS3.10, chapter 7): no more is read where DICOM files are not taken."""

import struct
from typing import Final

# The first bytes that tell a DICOM file: it may begin without its mark.
SIGNATURE_BYTES: Final = 256
PREAMBLE_BYTES: Final = 128
MARK: Final = b"DICM"
# Old files begin with their file meta information, or with the first elements of their data set: value
# representations by the number of the element, by group.
_STARTS: Final = {
    0x0002: {0x00: b"UL", 0x01: b"OB", 0x02: b"UI", 0x10: b"UI"},
    0x0008: {0x00: b"UL", 0x01: b"UL", 0x05: b"CS", 0x06: b"SQ", 0x08: b"CS", 0x12: b"DA"}
    | {0x13: b"TM", 0x14: b"UI", 0x15: b"DT", 0x16: b"UI", 0x18: b"UI"},
}
_FIRST_GROUPS: Final = frozenset({b"\2\0", b"\0\2", b"\x08\0", b"\0\x08"})
_LONGEST: Final = 4096
_UNDEFINED: Final = 0xFFFF_FFFF
_PIXEL_GROUP: Final = 0x0028


def is_dicom(content: bytes) -> bool:
    """Tell if a file begins as a DICOM file does: with its mark, or with one of the first elements."""
    if content[PREAMBLE_BYTES : PREAMBLE_BYTES + 4] == MARK:
        return True
    if len(content) < 12 or content[:2] not in _FIRST_GROUPS:
        return False
    order = ">" if content[0] == 0 else "<"
    group, number, representation, short, long = struct.unpack_from(order + "HH2sHI", content)
    known = _STARTS[group].get(number)
    if representation == known:
        start, length = (12, long) if known in (b"OB", b"SQ") else (8, short)
    elif known is not None and order == "<":
        start, length = 8, struct.unpack_from("<I", content, 4)[0]
    else:
        # Big-endian files have representations.
        return False
    if known == b"SQ" and length == _UNDEFINED:
        return True
    if length > _LONGEST or length % 2 or (known == b"UL" and length != 4):
        return False
    after = content[start + length : start + length + 4]
    # Elements are in order of their tags; an image has some of these groups, and no group a length alone.
    last = _PIXEL_GROUP if number else group
    return len(after) < 4 or (group, number) < struct.unpack(order + "HH", after) < (last, 0xFFFF)


def is_big_endian(content: bytes, start: int, *, otherwise: bool) -> bool:
    """Tell the byte order by the group of the first element; groups up to 255 have a byte of zero."""
    group = content[start : start + 2]
    return group[0] == 0 if len(group) == 2 and (group[0] == 0) != (group[1] == 0) else otherwise

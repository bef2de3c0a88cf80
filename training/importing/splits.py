"""The split of an image: its published name, or drawn."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Final

from training.common.record import Split

SPLITS: Final[Mapping[str, Split]] = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validate": "val",
    "validation": "val",
    "dev": "val",
    "test": "test",
    "testing": "test",
}
_COMPONENT: Final = re.compile(rf"({'|'.join(SPLITS)})(?:[-_.]\d+(?:[-_]of[-_]\d+.*)?)?", re.IGNORECASE)
# Of ten images without a split, one is for validation and one for testing.
_DRAWN: Final[tuple[Split, ...]] = ("val", "test", *("train",) * 8)


def draw_split(name: str, splits: tuple[Split, ...] = _DRAWN) -> Split:
    """Take a split by a digest: the same for all images of a group, and again at the next import."""
    return splits[hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()[0] % len(splits)]


def split_in(parts: Sequence[str]) -> tuple[Split, int] | None:
    """The split that components of a path name, and the place of the last that does; None if they differ.

    A component is the split's name, such as train, or has a number behind it, as train-00001-of-00004.
    """
    found = {
        place: SPLITS[part[1].lower()]
        for place, part in enumerate(map(_COMPONENT.fullmatch, parts))
        if part is not None
    }
    return (found[max(found)], max(found)) if len(set(found.values())) == 1 else None

"""The split of an image: its published name, or drawn."""

import hashlib
import re
from collections.abc import Mapping
from typing import Final

from training.data.record import Split

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
_WORD: Final = re.compile(r"[a-z]+")
# Of ten images without a split, one is for validation and one for testing.
_DRAWN: Final[tuple[Split, ...]] = ("val", "test", *("train",) * 8)


def draw_split(name: str, splits: tuple[Split, ...] = _DRAWN) -> Split:
    """Take a split by a digest: the same for all images of a group, and again at the next import."""
    return splits[hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()[0] % len(splits)]


def split_in(path: str) -> Split | None:
    """The split that a path names, such as train-00001-of-00004.parquet; the last one of several."""
    named = [SPLITS[word] for word in _WORD.findall(path.lower()) if word in SPLITS]
    return named[-1] if named else None

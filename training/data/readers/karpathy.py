"""Flickr8K, Flickr30K and MS-COCO as Karpathy and Fei-Fei split them (dataset_*.json)."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from training.data.readers.listing import Listing
from training.data.record import Record, Split
from training.data.rejections import Rejection
from training.errors import DataError

_FILES: Final = ("dataset_flickr30k.json", "dataset_flickr8k.json", "dataset_coco.json", "dataset.json")
_FOLDERS: Final = ("images", "flickr30k-images", "flickr30k_images", "Flicker8k_Dataset", "Flickr8k_Dataset")
# "restval" is the part of MS-COCO's validation images that the published splits train on.
_SPLITS: Final[dict[str, Split]] = {"train": "train", "restval": "train", "val": "val", "test": "test"}
_START: Final = re.compile(r'"images"\s*:\s*\[')
_BETWEEN: Final = re.compile(r"[\s,]*")


def list_karpathy(source: Path, images: Path | None = None) -> Listing:
    """Find the JSON file in `source` and the images beside it.

    Args:
        source: The JSON file, or the folder that holds it.
        images: Folder of the images; found by its usual names without it.

    Raises:
        DataError: There is no such file, or it is of another layout.
    """
    file = source if source.is_file() else next((p for n in _FILES if (p := source / n).is_file()), None)
    if file is None:
        raise DataError(f"There is none of {', '.join(_FILES)} in {source}.")
    if images is None:
        images = next((p for n in _FOLDERS if (p := file.parent / n).is_dir()), file.parent)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file} cannot be read: {error}.") from error
    return Listing(file, images, text.count('"filename"'), read_karpathy(text, str(file)), unit="image")


def read_karpathy(text: str, name: str = "the file") -> Iterator[Record | Rejection]:
    """Give one record for each entry of `images`; `line` is the number of the entry, from 1.

    The entries are decoded one by one, since all of MS-COCO at once needs gigabytes.

    Args:
        text: The whole JSON text.
        name: What it is called in messages.

    Raises:
        DataError: It is no JSON, or has no list of images.
    """
    start = _START.search(text)
    if start is None:
        raise DataError(f'{name} has no list "images"; is it one of Karpathy\'s dataset files?')
    decoder, place, number = json.JSONDecoder(), start.end(), 0
    while True:
        gap = _BETWEEN.match(text, place)
        place = gap.end() if gap else place
        if text[place : place + 1] == "]":
            return
        number += 1
        try:
            entry, place = decoder.raw_decode(text, place)
        except (json.JSONDecodeError, RecursionError) as error:
            raise DataError(f"{name} is damaged at image {number}: {error}.") from error
        yield _to_record(entry, number)


def _to_record(entry: Any, number: int) -> Record | Rejection:
    try:
        filename, split = entry["filename"], entry["split"]
        texts = tuple(text for sentence in entry["sentences"] if (text := " ".join(sentence["raw"].split())))
        folder = entry.get("filepath", "")
        image = f"{folder}/{filename}" if folder else str(filename)
    except (KeyError, TypeError, AttributeError) as error:
        return Rejection(number, f"it lacks or garbles filename, split or sentences ({error})")
    if split not in _SPLITS:
        return Rejection(number, f"the split {split!r} is not one of {', '.join(_SPLITS)}")
    if not texts:
        return Rejection(number, f"the image {image!r} has no caption")
    return Record(id=Path(image).stem, image=image, split=_SPLITS[split], texts=texts, line=number)

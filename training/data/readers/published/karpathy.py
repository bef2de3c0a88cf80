"""Flickr8K, Flickr30K and MS-COCO as Karpathy and Fei-Fei split them (dataset_*.json)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from training.data.readers.common.image_files import image_paths
from training.data.readers.common.json_lists import iterate_list, read_text
from training.data.readers.listing import Listing
from training.data.record import Record, Split
from training.data.rejections import Rejection
from training.errors import DataError

_FILES: Final = ("dataset_flickr30k.json", "dataset_flickr8k.json", "dataset_coco.json", "dataset.json")
_FOLDERS: Final = ("images", "flickr30k-images", "flickr30k_images", "Flicker8k_Dataset", "Flickr8k_Dataset")
# "restval" is the part of MS-COCO's validation images that the published splits train on.
_SPLITS: Final[dict[str, Split]] = {"train": "train", "restval": "train", "val": "val", "test": "test"}


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
    text = read_text(file)
    total = sum(1 for _ in read_karpathy(text, str(file)))
    items = read_karpathy(text, str(file))
    return Listing(file, images, total, items, unit="image", files=image_paths(images))


def read_karpathy(text: str, name: str = "the file") -> Iterator[Record | Rejection]:
    """Give one record for each entry of `images`; `line` is the number of the entry, from 1.

    Args:
        text: The whole JSON text.
        name: What it is called in messages.

    Raises:
        DataError: It is no JSON, or has no list of images.
    """
    hint = "is it one of Karpathy's dataset files?"
    for number, entry in iterate_list(text, "images", name, hint):
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

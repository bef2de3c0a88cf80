"""Images with captions as published: MS-COCO's own files, and those that Karpathy and Fei-Fei split."""

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from training.common.errors import DataError
from training.common.record import Record, Split
from training.common.rejections import Rejection
from training.importing.files import image_paths
from training.importing.layouts import Layout, Source
from training.importing.listing import Listing
from training.importing.splits import SPLITS

_BETWEEN: Final = re.compile(r"[\s,]*")
_COCO: Final = re.compile(r"captions_((train|val)(\d{4}))\.json")
_COCO_HINT: Final = "is it one of MS-COCO's files of captions?"
_KARPATHY: Final = ("dataset_flickr30k.json", "dataset_flickr8k.json", "dataset_coco.json", "dataset.json")
_FOLDERS: Final = ("images", "flickr30k-images", "flickr30k_images", "Flicker8k_Dataset", "Flickr8k_Dataset")
# "restval" is the part of MS-COCO's validation images that the published splits train on.
_SPLITS: Final[dict[str, Split]] = {"train": "train", "restval": "train", "val": "val", "test": "test"}


def list_karpathy(source: Source) -> Listing:
    """Find dataset_*.json (Flickr8K, Flickr30K, MS-COCO), and the images next to it in their usual folder."""
    file: Path | None = source.path
    if not source.path.is_file():
        file = next((path for name in _KARPATHY if (path := source.path / name).is_file()), None)
    if file is None:
        raise DataError(f"There is none of {', '.join(_KARPATHY)} in {source.path}.")
    images = source.images
    if images is None:
        usual = (path for name in _FOLDERS if (path := file.parent / name).is_dir())
        images = next(usual, file.parent)
    entries = _entries(file, "images", "is it one of Karpathy's dataset files?")
    items = [_karpathy_record(entry, number) for number, entry in entries]
    return Listing(file, images, len(items), iter(items), "image", files=image_paths(images))


KARPATHY: Final = Layout(
    "karpathy",
    "Flickr8K, Flickr30K or MS-COCO with Karpathy's dataset_*.json",
    list_karpathy,
    is_folder=False,
)


def _karpathy_record(entry: Any, number: int) -> Record | Rejection:
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


def _entries(file: Path, key: str, hint: str) -> Iterator[tuple[int, Any]]:
    """Entries of the list under a key, with their numbers from 1: all of MS-COCO at once needs gigabytes.

    Raises:
        DataError: The file cannot be read, is no JSON, or has no such list, which ends with the hint.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file} cannot be read: {error}.") from error
    start = re.search(rf'"{re.escape(key)}"\s*:\s*\[', text)
    if start is None:
        raise DataError(f'{file} has no list "{key}"; {hint}')
    decoder, position, number = json.JSONDecoder(), start.end(), 0
    while True:
        gap = _BETWEEN.match(text, position)
        position = gap.end() if gap else position
        if text[position : position + 1] == "]":
            return
        number += 1
        try:
            entry, position = decoder.raw_decode(text, position)
        except (json.JSONDecodeError, RecursionError) as error:
            raise DataError(f"{file} is damaged at {key.removesuffix('s')} {number}: {error}.") from error
        yield number, entry


@dataclass(frozen=True)
class _Part:
    """One of MS-COCO's files of captions and the folder of its images, relative to that of all images."""

    file: Path
    folder: str
    split: Split
    year: str


def list_coco(source: Source) -> Listing:
    """Find MS-COCO's captions_*.json in the source or its folder `annotations`, and the images of each.

    They are in folders such as train2017, in the source, in `images` there, or in the folder `images` given.
    Of several years the newest that has images is taken, as the same images come again. The published
    validation images become the split val.
    """
    folders = (source.path / "annotations", source.path)
    files = [path for folder in folders for path in sorted(folder.glob("captions_*.json"))]
    named = [(path, match) for path in files if (match := _COCO.fullmatch(path.name))]
    if not named:
        raise DataError(
            f"There is no annotations/captions_train2017.json or captions_val2017.json in {source.path}."
        )
    root = source.images or source.path
    parts = [
        _Part(path, folder, SPLITS[match[2]], match[3])
        for path, match in named
        if (folder := _coco_folder(root, match[1])) is not None
    ]
    if not parts:
        names = ", ".join(match[1] for _, match in named)
        raise DataError(
            f"There is none of the folders {names} of images in {root}; name theirs with --images."
        )
    year = max(part.year for part in parts)
    chosen = [part for part in parts if part.year == year]
    unread = sorted({path.name for path, _ in named} - {part.file.name for part in chosen})
    notes = [
        f"{name} is not read: its images are not there or come again in another year." for name in unread
    ]
    items: list[Record | Rejection] = []
    left_out: dict[str, int] = {}
    for part in chosen:
        captions, unusable = _coco_captions(part)
        items += _coco_records(part, captions)
        if unusable:
            notes.append(
                f"{unusable:,} captions of {part.file.name} lack image_id or caption and are passed over."
            )
        if captions:
            left_out[f"images that {part.file.name} does not list, with captions"] = len(captions)
    images = image_paths(root, [part.folder for part in chosen])
    return Listing(source.path, root, len(items), iter(items), "image", left_out, notes, files=images)


COCO: Final = Layout("coco", "MS-COCO's captions_*.json", list_coco)


def _coco_folder(root: Path, name: str) -> str | None:
    for folder in (name, f"images/{name}"):
        if (root / folder).is_dir():
            return folder
    return "" if root.name == name else None


def _coco_captions(part: _Part) -> tuple[dict[int, list[str]], int]:
    """Captions by image, and the number of those that cannot be used."""
    captions: dict[int, list[str]] = {}
    unusable = 0
    for _, entry in _entries(part.file, "annotations", _COCO_HINT):
        match entry:
            case {"image_id": int(image), "caption": str(caption)} if caption.strip():
                captions.setdefault(image, []).append(" ".join(caption.split()))
            case _:
                unusable += 1
    return captions, unusable


def _coco_records(part: _Part, captions: dict[int, list[str]]) -> Iterator[Record | Rejection]:
    """The images of a file, whose captions are taken out of the mapping."""
    entries = list(_entries(part.file, "images", _COCO_HINT))
    names = defaultdict[int, set[str]](set)
    for _, entry in entries:
        if isinstance(entry, dict) and isinstance(entry.get("id"), int):
            names[entry["id"]].add(str(entry.get("file_name")))
    for number, entry in entries:
        reason = ""
        match entry:
            case {"file_name": str(file), "id": int(key)} if file:
                if len(names[key]) > 1:
                    reason = f"the image {file!r} has the id {key} of another image"
                elif key not in captions:
                    reason = f"the image {file!r} has no caption"
            case _:
                reason = "it lacks or garbles file_name or id"
        if reason:
            yield Rejection(number, reason, part.file.name)
        else:
            yield Record(
                id=Path(file).stem,
                image=f"{part.folder}/{file}" if part.folder else file,
                split=part.split,
                texts=tuple(captions[key]),
                line=number,
                table=part.file.name,
            )
    # At the end: an image that comes twice has captions each time.
    for key in names:
        captions.pop(key, None)

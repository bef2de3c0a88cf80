"""MS-COCO as published: annotations/captions_train2017.json and its like, and a folder of images for each."""

import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from training.data.readers.common.image_files import image_paths
from training.data.readers.common.json_lists import iterate_list, read_text
from training.data.readers.common.splits import SPLITS
from training.data.readers.listing import Listing
from training.data.record import Record, Split
from training.data.rejections import LeftOut, Rejection
from training.errors import DataError

_NAME: Final = re.compile(r"captions_((train|val)(\d{4}))\.json")
_HINT: Final = "is it one of MS-COCO's files of captions?"


@dataclass(frozen=True)
class _Part:
    """One file of captions and the folder of its images, relative to that of all images."""

    file: Path
    folder: str
    split: Split
    year: str


def list_coco(source: Path, images: Path | None = None) -> Listing:
    """Find captions_*.json in `source` or its folder `annotations`, and the images of each.

    They lie in folders such as train2017, in `source`, in `images` there, or in the folder `images` given. Of
    several years the newest that has images is taken, as the same images come again. The published
    validation images become the split val.

    Raises:
        DataError: There is no file of captions, or none whose images are there.
    """
    files = [
        path for place in ("annotations", "") for path in sorted((source / place).glob("captions_*.json"))
    ]
    named = [(path, match) for path in files if (match := _NAME.fullmatch(path.name))]
    if not named:
        raise DataError(
            f"There is no annotations/captions_train2017.json or captions_val2017.json in {source}."
        )
    root = images or source
    parts = [
        _Part(path, folder, SPLITS[match[2]], match[3])
        for path, match in named
        if (folder := _folder(root, match[1])) is not None
    ]
    if not parts:
        folders = ", ".join(match[1] for _, match in named)
        raise DataError(
            f"There is none of the folders {folders} of images in {root}; name theirs with --images."
        )
    year = max(part.year for part in parts)
    chosen = [part for part in parts if part.year == year]
    unread = sorted({path.name for path, _ in named} - {part.file.name for part in chosen})
    notes = [
        f"{name} is not read: its images are not there or come again in another year." for name in unread
    ]
    items: list[Record | Rejection] = []
    beside: list[LeftOut] = []
    for part in chosen:
        captions, unusable = _captions(part)
        items += _records(part, captions)
        if unusable:
            notes.append(
                f"{unusable:,} captions of {part.file.name} lack image_id or caption and are passed over."
            )
        if captions:
            reason = f"images that {part.file.name} does not list, with captions"
            beside.append(LeftOut(reason, len(captions)))
    return Listing(
        source,
        root,
        len(items),
        iter(items),
        "image",
        beside,
        notes=notes,
        files=image_paths(root, [part.folder for part in chosen]),
    )


def _folder(root: Path, name: str) -> str | None:
    places = (name, f"images/{name}")
    if found := next((place for place in places if (root / place).is_dir()), None):
        return found
    return "" if root.name == name else None


def _captions(part: _Part) -> tuple[dict[int, list[str]], int]:
    """Captions by image, and the number of those that cannot be used."""
    captions: dict[int, list[str]] = {}
    unusable = 0
    for _, entry in iterate_list(read_text(part.file), "annotations", str(part.file), _HINT):
        match entry:
            case {"image_id": int(image), "caption": str(caption)} if caption.strip():
                captions.setdefault(image, []).append(" ".join(caption.split()))
            case _:
                unusable += 1
    return captions, unusable


def _records(part: _Part, captions: dict[int, list[str]]) -> list[Record | Rejection]:
    """The images of a file, whose captions are taken out of the mapping."""
    entries = list(iterate_list(read_text(part.file), "images", str(part.file), _HINT))
    files = defaultdict[int, set[str]](set)
    for _, entry in entries:
        if isinstance(entry, dict) and isinstance(entry.get("id"), int):
            files[entry["id"]].add(str(entry.get("file_name")))
    shared = {key for key, names in files.items() if len(names) > 1}
    items = [_to_record(entry, number, part, captions, shared) for number, entry in entries]
    # At the end: an image that comes twice has captions each time.
    for key in files:
        captions.pop(key, None)
    return items


def _to_record(
    entry: Any, number: int, part: _Part, captions: dict[int, list[str]], shared: set[int]
) -> Record | Rejection:
    match entry:
        case {"file_name": str(file), "id": int(key)} if file:
            found = captions.get(key, [])
        case _:
            return Rejection(number, "it lacks or garbles file_name or id", part.file.name)
    if key in shared:
        return Rejection(number, f"the image {file!r} has the id {key} of another image", part.file.name)
    if not found:
        return Rejection(number, f"the image {file!r} has no caption", part.file.name)
    return Record(
        id=Path(file).stem,
        image=f"{part.folder}/{file}" if part.folder else file,
        split=part.split,
        texts=tuple(found),
        line=number,
        table=part.file.name,
    )

"""Commands for a folder that is more than images: a published layout, or images with a table."""

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from shlex import quote
from typing import Final

from training.data.readers.folder.columns import is_known_column, read_columns
from training.data.readers.layouts import Layout
from training.data.readers.tables.table import open_table
from training.errors import DataError

# Files of which one tells a layout, by their paths in small letters.
_SIGNS: Final[Mapping[Layout, str]] = {
    "mimic-cxr": r"mimic-cxr-2\.[0-9.]+-split\.csv(?:\.gz)?|p\d{3,}/(?:s\d+/)?s\d+\.txt",
    "chexpert-plus": r"df_chexpert_plus_.*\.csv",
    "chexpert": r"chexpert[^/]*/(?:train|valid)\.csv",
    "nih-cxr14": r"data_entry_2017.*\.csv",
    "padchest": r"padchest_.*\.csv(?:\.gz)?",
    "iu-xray": r"indiana_reports\.csv|ecgen-radiology/.*\.xml",
    "karpathy": r"dataset_(?:flickr8k|flickr30k|coco)\.json",
    "coco": r"annotations/captions_(?:train|val)\d+\.json",
    "huggingface": r".*\.(?:parquet|arrow)",
    "webdataset": r".*\.(?:tar|tgz|tar\.gz)",
}
_TABLE: Final = re.compile(r"(?:[^/]+/)?[^/]+\.(?:csv|tsv|jsonl|txt|token|csv\.gz)", re.IGNORECASE)
# What Takeout and programs for photographs write beside images; Takeout cuts long names.
_BESIDE: Final = re.compile(r"\.xmp$|(?<!/metadata)(?<!^metadata)\.json$", re.IGNORECASE)
_SAYING: Final = frozenset({"text", "report", "findings", "impression", "labels"})
# A folder with more files that may be tables has texts, not tables.
_MOST_TABLES: Final = 20


def hints(
    folder: Path, others: Collection[str], images: Collection[str], used: Collection[str] = ()
) -> Iterator[str]:
    """Commands that read more of a folder than its images, a sentence each.

    Args:
        folder: The folder.
        others: Paths of its files that are no images.
        images: Paths of its images.
        used: Those of them that are taken for texts of images.
    """
    for layout, pattern in _SIGNS.items():
        sign = re.compile(rf"(?:.*/)?(?:{pattern})")
        found = min((path for path in others if sign.fullmatch(path.lower())), default=None)
        if found is not None:
            out = " OUT" if layout in ("huggingface", "webdataset") else ""
            yield (
                f"{found!r} is a file of the layout {layout}: `recoquest import {layout} "
                f"{quote(str(folder))}{out}` reads it."
            )
    folders = {path.rpartition("/")[0] for path in images}
    beside = [path for path in others if _BESIDE.search(path) and path.rpartition("/")[0] in folders]
    if beside:
        yield (
            f"{len(beside):,} {'file' if len(beside) == 1 else 'files'} such as {min(beside)!r} may have "
            "captions and keywords, which are not read: write them into a table with the columns file_name "
            "and text, and give it with --table (`exiftool -csv -r FOLDER > table.csv` writes those of .xmp "
            "files and of images)."
        )
    tables = sorted(path for path in others if path not in used and _TABLE.fullmatch(path))
    for path in tables if len(tables) <= _MOST_TABLES else ():
        if is_table(folder / path):
            yield (
                f"{path!r} is a table of images: `recoquest import folder {quote(str(folder))} "
                f"--table {quote(str(folder / path))}` takes what it says of them."
            )


def is_table(path: Path) -> bool:
    """Whether a file is a table that names images and says something of them."""
    try:
        columns = read_columns(open_table(path, is_known_column))
    except DataError:
        return False
    return not _SAYING.isdisjoint(columns.places)

"""NIH ChestX-ray14: Data_Entry_2017.csv, the lists of both splits, images in images_001/images and on."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from training.data.readers.common.ages import age_in_years
from training.data.readers.common.image_files import ImageFiles
from training.data.readers.common.splits import draw_split
from training.data.readers.listing import Listing
from training.data.readers.tables import count_rows, find_table, read_rows
from training.data.record import MetadataValue, Record, Split
from training.data.rejections import LeftOut, Rejection
from training.errors import DataError

_TABLES: Final = ("Data_Entry_2017_v2020", "Data_Entry_2017", "sample_labels")
_COLUMNS: Final = ("Image Index", "Finding Labels", "Patient ID", "Patient Age", "View Position")
_LISTS: Final = ("train_val_list", "test_list")
# The published list trains and validates; a tenth of its patients validate.
_TRAIN_VAL: Final[tuple[Split, ...]] = ("val", *("train",) * 9)


def list_nih_cxr14(source: Path, images: Path | None = None) -> Listing:
    """Find the table and the lists in `source`, and the images anywhere below it or below `images`.

    Raises:
        DataError: The table is missing or of another layout, or one of the two lists is missing.
    """
    table = next((path for name in _TABLES if (path := find_table(source, name))), None)
    if table is None:
        raise DataError(f"There is no Data_Entry_2017.csv or Data_Entry_2017_v2020.csv in {source}.")
    published = _published(source)
    root = images or source
    files = ImageFiles(root)
    items = _read(table, files, published)
    return Listing(table, root, count_rows(table, _COLUMNS), items, files=files.paths())


def _published(source: Path) -> dict[str, str] | None:
    """The list that each image is on; None without lists."""
    paths = {name: source / f"{name}.txt" for name in _LISTS}
    missing = [path for path in paths.values() if not path.is_file()]
    if len(missing) == len(_LISTS):
        return None
    if missing:
        raise DataError(f"There is no {missing[0].name} in {source}, only the other list of the two.")
    try:
        listed = {name: set(path.read_text(encoding="utf-8").split()) for name, path in paths.items()}
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"The lists of the splits in {source} cannot be read: {error}.") from error
    train_val, test = listed.values()
    if both := train_val & test:
        raise DataError(f"{min(both)!r} is in train_val_list.txt and in test_list.txt; remove it from one.")
    return {image: name for name, images in listed.items() for image in images}


def _read(
    table: Path, files: ImageFiles, published: Mapping[str, str] | None
) -> Iterator[Record | Rejection | LeftOut]:
    for item in read_rows(table, _COLUMNS):
        if not isinstance(item, tuple):
            yield item
            continue
        line, row = item
        name, patient = row["Image Index"].strip(), row["Patient ID"].strip()
        image = files.find(name)
        if image is None:
            yield Rejection(line, files.why_not(name))
            continue
        if not patient:
            yield Rejection(line, "the Patient ID is missing")
        elif published is not None and name not in published:
            yield Rejection(line, f"{name!r} is neither in train_val_list.txt nor in test_list.txt")
        else:
            yield Record(
                id=Path(name).stem,
                image=image,
                split=_split(patient, None if published is None else published[name]),
                group=patient,
                labels=tuple(filter(None, (part.strip() for part in row["Finding Labels"].split("|")))),
                metadata=_metadata(row),
                line=line,
                drawn=published is None,
            )


def _split(patient: str, published: str | None) -> Split:
    if published is None:
        return draw_split(patient)
    return "test" if published == "test_list" else draw_split(patient, _TRAIN_VAL)


def _metadata(row: Mapping[str, str]) -> dict[str, MetadataValue]:
    known: dict[str, MetadataValue] = {}
    if view := row["View Position"].strip():
        known["view"] = view
    if sex := (row.get("Patient Gender") or row.get("Patient Sex") or "").strip():
        known["sex"] = sex
    if (age := age_in_years(row["Patient Age"])) is not None:
        known["age"] = age
    if (follow_up := row.get("Follow-up #", "").strip()).isdigit():
        known["follow_up"] = int(follow_up)
    return known

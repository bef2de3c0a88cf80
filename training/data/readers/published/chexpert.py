"""CheXpert: train.csv and valid.csv with fourteen labels an image, without texts."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Final

from training.data.readers.common.ages import age_in_years
from training.data.readers.common.image_files import image_paths
from training.data.readers.listing import Listing
from training.data.readers.tables import count_rows, find_table, need_table, read_rows, read_table
from training.data.record import MetadataValue, Record, Split
from training.data.rejections import LeftOut, Rejection

_ABOUT: Final = ("Path", "Sex", "Age", "Frontal/Lateral", "AP/PA")
# Patient, study and file.
_BELOW_PATIENTS: Final = 3
_SEXES: Final = {"Male": "M", "Female": "F"}
_POSITIVE: Final = frozenset({"1", "1.0"})


def list_chexpert(source: Path, images: Path | None = None, leave_out: Path | None = None) -> Listing:
    """Find train.csv, and valid.csv if it is there, in `source`.

    Args:
        source: Folder of the tables, such as CheXpert-v1.0-small.
        images: Folder that holds the folder CheXpert-v1.0-small, or that folder itself.
        leave_out: A table with a column Path, such as the candidates of CheXpert 8x200. All images of the
            patients that it names are left out of train.

    Raises:
        DataError: A table is missing or of another layout.
    """
    tables: dict[Split, Path] = {"train": need_table(source, "train")}
    valid = find_table(source, "valid")
    if valid is not None:
        tables["val"] = valid
    root = images or source
    items = (item for split, table in tables.items() for item in read_chexpert(table, split, root, leave_out))
    total = sum(count_rows(table, _ABOUT) for table in tables.values())
    files = image_paths(root, [place for table in tables.values() for place in _places(table, root)])
    return Listing(source, root, total, items, files=files)


def _places(table: Path, images: Path) -> Iterator[str]:
    """The folder of the patients of a table, as the first path of it says."""
    for item in read_rows(table, _ABOUT):
        if isinstance(item, tuple) and _is_patients(path := _path_of(item[1], images)):
            yield "/".join(path.parts[:-_BELOW_PATIENTS])
            return


def read_chexpert(
    table: Path, split: Split, images: Path, leave_out: Path | None = None
) -> Iterator[Record | Rejection | LeftOut]:
    """Give one record for each line of a table; the uncertain labels, marked -1, are none."""
    held_out = patients_of(leave_out) if leave_out is not None and split == "train" else frozenset[str]()
    for item in read_rows(table, _ABOUT):
        if not isinstance(item, tuple):
            yield item
            continue
        line, row = item
        path = _path_of(row, images)
        if not _is_patients(path):
            reason = f"the path {row['Path']!r} is not .../patientN/studyN/file"
            yield Rejection(line, reason, table.name)
        elif path.parts[-3] in held_out:
            yield LeftOut(f"images of patients that {leave_out} names")
        else:
            record = _to_record(row, path, split)
            yield replace(record, line=line, table=table.name)


def _path_of(row: Mapping[str, str], images: Path) -> PurePosixPath:
    path = PurePosixPath(row["Path"].strip().replace("\\", "/"))
    # The tables' paths begin with the name of the data set's folder, which may be `images` itself.
    if len(path.parts) > _BELOW_PATIENTS and not (images / path.parts[0]).is_dir():
        return path.relative_to(path.parts[0])
    return path


def _is_patients(path: PurePosixPath) -> bool:
    return len(path.parts) >= _BELOW_PATIENTS and path.parts[-3].startswith("patient")


def _to_record(row: dict[str, str], path: PurePosixPath, split: Split) -> Record:
    return Record(
        id="-".join((*path.parts[-3:-1], path.stem)),
        image=path.as_posix(),
        split=split,
        group=path.parts[-3],
        labels=tuple(name for name, value in row.items() if name not in _ABOUT and value in _POSITIVE),
        metadata=_metadata(row),
    )


def _metadata(row: dict[str, str]) -> dict[str, MetadataValue]:
    known: dict[str, MetadataValue] = {}
    view = "LATERAL" if row["Frontal/Lateral"] == "Lateral" else row["AP/PA"]
    if view:
        known["view"] = view
    if row["Sex"] in _SEXES:
        known["sex"] = _SEXES[row["Sex"]]
    if (age := age_in_years(row["Age"])) is not None:
        known["age"] = age
    return known


def patients_of(table: Path) -> frozenset[str]:
    """The patients that a table names by paths in its column Path.

    Raises:
        DataError: The table cannot be read or has no such column.
    """
    paths = (PurePosixPath(row["Path"]) for _, row in read_table(table, ("Path",)))
    return frozenset(path.parts[-3] for path in paths if len(path.parts) >= 3)

"""CheXpert Plus: df_chexpert_plus_*.csv with reports by section and what is known of the patients."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Final

from training.data.readers.common.ages import age_in_years
from training.data.readers.common.image_files import image_paths
from training.data.readers.common.reports import make_report
from training.data.readers.common.splits import SPLITS
from training.data.readers.listing import Listing
from training.data.readers.published.chexpert import patients_of
from training.data.readers.tables import count_rows, read_rows
from training.data.record import MetadataValue, Record
from training.data.rejections import LeftOut, Rejection
from training.errors import DataError

_COLUMNS: Final = ("path_to_image", "section_findings", "section_impression", "split")
# Folders of unpacked archives of images; the table names .jpg files, the archives also have .png.
_PLACES: Final = ("", "PNG", "PNG/PNG", "images")
_FOLDERS: Final = ("train", "valid", "test")
_SUFFIXES: Final = (".jpg", ".png")
_LABELS: Final = ("chexbert_labels/report_fixed.json", "report_fixed.json")
_PATIENT: Final = ("race", "ethnicity", "interpreter_needed", "insurance_type", "deceased")
_SEXES: Final = {"Male": "M", "Female": "F"}


def list_chexpert_plus(source: Path, images: Path | None = None, leave_out: Path | None = None) -> Listing:
    """Find df_chexpert_plus_*.csv in `source`, and the images there, in PNG there, or in `images`.

    Labels are those that CheXbert gave the whole report, marked 1, if chexbert_labels/report_fixed.json is
    there.

    Args:
        source: Folder of the table.
        images: Folder that holds train and valid.
        leave_out: A table with a column Path; the patients that it names are left out of train.

    Raises:
        DataError: The table is missing or of another layout.
    """
    tables = sorted(source.glob("df_chexpert_plus_*.csv*"))
    if not tables:
        raise DataError(f"There is no df_chexpert_plus_240401.csv in {source}.")
    table, root = tables[-1], images or source
    items = _read(table, root, _labels(source), leave_out)
    files = image_paths(root, [f"{place}/{split}".strip("/") for place in _PLACES for split in _FOLDERS])
    return Listing(table, root, count_rows(table, _COLUMNS), items, files=files)


def _read(
    table: Path,
    root: Path,
    labels: Mapping[str, tuple[str, ...]],
    leave_out: Path | None,
) -> Iterator[Record | Rejection | LeftOut]:
    held_out = frozenset[str]() if leave_out is None else patients_of(leave_out)
    files = _Places(root)
    for item in read_rows(table, _COLUMNS):
        if not isinstance(item, tuple):
            yield item
            continue
        line, row = item
        path = PurePosixPath(row["path_to_image"].strip().replace("\\", "/"))
        split = SPLITS.get(row["split"].strip().lower())
        if len(path.parts) < 4 or not path.parts[-3].startswith("patient"):
            yield Rejection(line, f"the path {row['path_to_image']!r} is not .../patientN/studyN/file")
        elif split is None:
            yield Rejection(line, f"the split {row['split']!r} is neither train nor valid")
        elif split == "train" and path.parts[-3] in held_out:
            yield LeftOut(f"images of patients that {leave_out} names")
        else:
            report = make_report(
                {"FINDINGS": row["section_findings"], "IMPRESSION": row["section_impression"]},
                row.get("section_narrative", "") or row.get("section_summary", ""),
            )
            yield Record(
                id="-".join((*path.parts[-3:-1], path.stem)),
                image=files.find(path),
                split=split,
                texts=report.sentences,
                group=path.parts[-3],
                labels=labels.get(path.with_suffix("").as_posix(), ()),
                report=report.text,
                metadata=_metadata(row, path),
                line=line,
            )


class _Places:
    """Finds the file of a path of the table; the places that held the last one are tried first."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._tried = [(place, suffix) for place in _PLACES for suffix in _SUFFIXES]

    def find(self, path: PurePosixPath) -> str:
        """The path of the file that is there, else of where it should be."""
        for number, (place, suffix) in enumerate(self._tried):
            inside = (PurePosixPath(place) / path.with_suffix(suffix)).as_posix()
            if (self._root / inside).is_file():
                self._tried.insert(0, self._tried.pop(number))
                return inside
        return path.as_posix()


def _labels(source: Path) -> dict[str, tuple[str, ...]]:
    """Labels by path without its ending; none where the file is not there."""
    path = next((source / name for name in _LABELS if (source / name).is_file()), None)
    if path is None:
        return {}
    try:
        with path.open(encoding="utf-8") as lines:
            entries = [json.loads(line) for line in lines if line.strip()]
        labels: dict[str, tuple[str, ...]] = {}
        for entry in entries:
            image = PurePosixPath(entry["path_to_image"]).with_suffix("").as_posix()
            own = tuple(name for name, value in entry.items() if name != "path_to_image" and value == 1)
            if labels.setdefault(image, own) != own:
                raise ValueError(f"{image} has two lines that differ")
        return labels
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"{path} cannot be read as one JSON object a line with a path_to_image: {error}."
        ) from error


def _metadata(row: Mapping[str, str], path: PurePosixPath) -> dict[str, MetadataValue]:
    known: dict[str, MetadataValue] = {"study": path.parts[-2]}
    lateral = row.get("frontal_lateral", "").strip().lower() == "lateral"
    if view := "LATERAL" if lateral else row.get("ap_pa", "").strip():
        known["view"] = view
    if sex := _SEXES.get(row.get("sex", "").strip()):
        known["sex"] = sex
    if (age := age_in_years(row.get("age", ""))) is not None:
        known["age"] = age
    for name in _PATIENT:
        if value := row.get(name, "").strip():
            known[name] = value
    if (order := row.get("patient_report_date_order", "").strip()).isdigit():
        known["report_order"] = int(order)
    return known

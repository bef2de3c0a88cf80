"""PadChest: one table of labels and Spanish reports, images in numbered folders."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from training.data.readers.common.image_files import ImageFiles
from training.data.readers.common.splits import draw_split
from training.data.readers.listing import Listing
from training.data.readers.sentences import report_sentences
from training.data.readers.tables import count_rows, read_rows
from training.data.readers.values import is_not_known, parse_list
from training.data.record import MetadataValue, Record
from training.data.rejections import LeftOut, Rejection
from training.errors import DataError

_TABLE: Final = "PADCHEST_chest_x_ray_images_labels_160K_01.02.19.csv"
_COLUMNS: Final = ("ImageID", "ImageDir", "StudyID", "PatientID", "Report", "Labels")
_VIEWS: Final = {"L": "LATERAL", "POSTEROANTERIOR": "PA", "ANTEROPOSTERIOR": "AP", "UNK": ""}
_LONGEST_LIST: Final = 20_000


def list_padchest(source: Path, images: Path | None = None) -> Listing:
    """Find PADCHEST_*.csv, also with .gz, in `source`, and the images anywhere below it or below `images`.

    Raises:
        DataError: The table is missing or of another layout.
    """
    tables = sorted(path for path in source.glob("PADCHEST_*.csv*") if path.suffix in (".csv", ".gz"))
    if not tables:
        raise DataError(f"There is no {_TABLE} in {source}, nor another PADCHEST_*.csv.")
    table = tables[0]
    root = images or source
    files = ImageFiles(root)
    items = _read(table, files)
    return Listing(table, root, count_rows(table, _COLUMNS), items, files=files.paths())


def _read(table: Path, files: ImageFiles) -> Iterator[Record | Rejection | LeftOut]:
    for item in read_rows(table, _COLUMNS):
        if not isinstance(item, tuple):
            yield item
            continue
        line, row = item
        name, patient = row["ImageID"].strip(), row["PatientID"].strip()
        image = files.find(name, row["ImageDir"].strip().removesuffix(".0"))
        labels = _labels(row["Labels"])
        if image is None:
            yield Rejection(line, files.why_not(name))
            continue
        if not patient:
            yield Rejection(line, "the PatientID is missing")
        elif labels is None:
            yield Rejection(line, f"the labels {row['Labels'][:80]!r} are not a list of texts in brackets")
        else:
            report = _known(row, "Report")
            yield Record(
                id=Path(name).stem,
                image=image,
                split=draw_split(patient),
                texts=report_sentences([report.replace(" .", ".")]),
                group=patient,
                labels=labels,
                report=report or None,
                metadata=_metadata(row),
                line=line,
                drawn=True,
            )


def _labels(text: str) -> tuple[str, ...] | None:
    """The labels of a list as Python writes it; None where it is none."""
    if is_not_known(text):
        return ()
    found = parse_list(text) if len(text) <= _LONGEST_LIST else None
    if found is None:
        return None
    return tuple(dict.fromkeys(filter(None, (label.strip() for label in found))))


def _known(row: Mapping[str, str], column: str) -> str:
    value = row.get(column, "").strip()
    return "" if is_not_known(value) else value


def _metadata(row: Mapping[str, str]) -> dict[str, MetadataValue]:
    known: dict[str, MetadataValue] = {}
    if study := _known(row, "StudyID"):
        known["study"] = study
    written = (_known(row, name) for name in ("Projection", "ViewPosition_DICOM"))
    if view := next(filter(None, (_VIEWS.get(name, name) for name in written)), ""):
        known["view"] = view
    if (sex := _known(row, "PatientSex_DICOM")) in ("M", "F"):
        known["sex"] = sex
    birth, taken = _known(row, "PatientBirth").removesuffix(".0"), _known(row, "StudyDate_DICOM")[:4]
    if birth.isdigit():
        known["birth_year"] = int(birth)
        if taken.isdigit() and int(taken) >= int(birth):
            known["age"] = int(taken) - int(birth)
    if method := _known(row, "MethodLabel"):
        known["labelled_by"] = method
    return known

"""Indiana University's chest radiographs: Kaggle's two tables, or the XML files of Open-i."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from training.data.readers.common.image_files import ImageFiles
from training.data.readers.common.reports import Report, make_report
from training.data.readers.common.splits import draw_split
from training.data.readers.listing import Listing
from training.data.readers.published.open_i import find_open_i, list_open_i
from training.data.readers.tables import count_rows, find_table, need_table, read_rows, read_table
from training.data.record import MetadataValue, Record
from training.data.rejections import LeftOut, Rejection
from training.errors import DataError

_REPORTS: Final = "indiana_reports"
_PROJECTIONS: Final = "indiana_projections"
_SECTIONS: Final = ("findings", "impression")
_COLUMNS: Final = ("uid", "filename", "projection")
_BETWEEN: Final = ";"


@dataclass(frozen=True)
class _Study:
    report: Report
    labels: tuple[str, ...]
    mesh: tuple[str, ...]


def list_iu_xray(source: Path, images: Path | None = None) -> Listing:
    """Find Kaggle's tables or Open-i's XML files in `source`, and the images below it or below `images`.

    Raises:
        DataError: Neither is there, or a table is of another layout.
    """
    if find_table(source, _REPORTS) is None and find_table(source, _PROJECTIONS) is None:
        folder = find_open_i(source)
        if folder is None:
            raise DataError(
                f"There is no {_REPORTS}.csv (Kaggle) in {source}, and no folder ecgen-radiology of XML "
                "files (Open-i)."
            )
        return list_open_i(folder, images or source)
    reports, table = need_table(source, _REPORTS), need_table(source, _PROJECTIONS)
    root = images or source
    files = ImageFiles(root)
    studies = {row["uid"].strip(): _study(row) for _, row in read_table(reports, ("uid", *_SECTIONS), "uid")}
    shown = {row["uid"].strip() for _, row in read_table(table, _COLUMNS)}
    alone = len(studies.keys() - shown)
    return Listing(
        table,
        root,
        count_rows(table, _COLUMNS),
        _read(table, studies, files),
        left_out=[LeftOut(f"reports of {reports.name} without an image", alone)] if alone else [],
        files=files.paths(),
    )


def _read(
    table: Path, studies: Mapping[str, _Study], files: ImageFiles
) -> Iterator[Record | Rejection | LeftOut]:
    for item in read_rows(table, _COLUMNS):
        if not isinstance(item, tuple):
            yield item
            continue
        line, row = item
        name, uid, view = row["filename"].strip(), row["uid"].strip(), row["projection"].strip()
        image, study = files.find(name), studies.get(uid)
        if image is None:
            yield Rejection(line, files.why_not(name))
        elif study is None:
            yield Rejection(line, f"{_REPORTS}.csv has no report {uid!r}")
        else:
            yield Record(
                id=name.removesuffix(".png").removesuffix(".dcm"),
                image=image,
                split=draw_split(uid),
                texts=study.report.sentences,
                group=uid,
                labels=study.labels,
                report=study.report.text,
                metadata=_metadata(view, study),
                line=line,
                drawn=True,
            )


def _study(row: Mapping[str, str]) -> _Study:
    report = make_report({"FINDINGS": row["findings"], "IMPRESSION": row["impression"]})
    return _Study(report, _parts(row.get("Problems", "")), _parts(row.get("MeSH", "")))


def _parts(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(filter(None, (part.strip() for part in text.split(_BETWEEN)))))


def _metadata(view: str, study: _Study) -> dict[str, MetadataValue]:
    known: dict[str, MetadataValue] = {}
    if view:
        known["view"] = view.upper()
    if study.mesh:
        known["mesh"] = study.mesh
    return known

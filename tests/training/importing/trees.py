"""Small folders that look like downloads, and their imports."""

import io
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tests.image_files import write_photo
from training.common.manifest import Record, read_manifest
from training.importing.layouts import Source, find_layout, import_data_set
from training.importing.report import ImportReport


def touch(folder: Path, *paths: str) -> None:
    """Write photographs, each another one."""
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        write_photo(folder / path)


def write(folder: Path, path: str, text: str | bytes) -> None:
    """Write a file."""
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_bytes(text if isinstance(text, bytes) else text.encode())


def image_bytes(seed: int, kind: str = "PNG") -> bytes:
    """The file of a small image of noise."""
    pixels = np.random.default_rng(seed).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


def records_of(folder: Path) -> dict[str, Record]:
    """The records of a manifest by id."""
    return {record.id: record for record in read_manifest(folder).records}


def left_out(report: ImportReport) -> dict[str, int]:
    """Numbers of what an import left out, by reason."""
    return {reason: count for tally in report.tallies for reason, count in tally.left_out.items()}


def refused(report: ImportReport) -> list[tuple[int, str]]:
    """Lines and reasons of what an import refused."""
    return [(item.line, item.reason) for item in report.rejections.items]


def imported(
    layout: str,
    source: Path,
    out: Path | None = None,
    *,
    max_rejected: float = 1.0,
    most_decoded: int = 2000,
    **options: Any,
) -> ImportReport:
    """Import a data set: each of its items is taken, refused or left out."""
    report = import_data_set(
        find_layout(layout),
        Source(source, out, **options),
        max_rejected=max_rejected,
        most_decoded=most_decoded,
    )
    assert [tally.unaccounted for tally in report.tallies] == [0] * len(report.tallies)
    # A film of several frames is several records.
    assert layout == "dicom" or report.tallies[0].taken + report.tallies[0].listed >= report.records
    return report

"""Small folders that look like downloads."""

import io
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tests.image_files import write_photo
from training.common.manifest import Record, read_manifest
from training.importing.layouts import Layout
from training.importing.report import ImportReport
from training.importing.run import import_data_set


def touch(folder: Path, *paths: str) -> None:
    """Make files that begin as images do."""
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        write_photo(folder / path)


def write(folder: Path, path: str, text: str) -> None:
    """Write a text file."""
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_text(text, encoding="utf-8")


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


def imported(layout: Layout, source: Path, out: Path | None = None, **options: Any) -> ImportReport:
    """Import a data set: all that was found is taken, refused or left out."""
    report = import_data_set(layout, source, out, **options)
    assert [tally.unaccounted for tally in report.tallies] == [0] * len(report.tallies)
    assert report.tallies[0].taken + report.tallies[0].listed >= report.records
    return report

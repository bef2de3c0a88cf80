"""Sample radiographs: drawn chest films with known findings, and reports that state them.

Shared factors are what report and film agree on: findings (the labels) with their sides and severity, and
the view. Unique to the film are exposure, marker and tilt; to the report age, indication and comparison. The
year is in neither. What an encoder keeps of each tells objectives apart. All are in the metadata.
"""

from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path
from typing import Final

import numpy as np
from PIL import Image

from training.common.progress import ProgressBar
from training.common.record import MetadataValue, Record, Split
from training.samples.collection import split_of, write_collection
from training.samples.radiographs.drawing import draw_radiograph
from training.samples.radiographs.factors import Film, draw_film, draw_patient
from training.samples.radiographs.reports import write_report

_STREAM: Final = 1
_FILMS_OF_A_PATIENT: Final = (0.6, 0.28, 0.12)
_ABOUT: Final = """# Sample radiographs

Drawn by `recoquest sample-data`; no patient is on them. What is known of each image is in `manifest.jsonl`:

| factor | where it shows |
|---|---|
| findings (`labels`), their `sides`, size, zone, number | image and text |
| `severity`: size of the first finding that has one | image and text |
| `view` | image and text |
| `sex` | faintly in the image; text |
| `exposure`, `marker` (the letter R), `tilt` | image only |
| `age`, `indication`, `comparison` | text only |
| `year` | neither |

Films of one patient share their `group` and their split.
"""


def write_radiographs(folder: Path, *, images: int, seed: int, size: int, progress: ProgressBar) -> None:
    """Draw `images` films into `folder`, with their manifest."""
    write_collection(folder, _draw_films(images, seed, size), about=_ABOUT, progress=progress)


def _draw_films(images: int, seed: int, size: int) -> Iterator[tuple[Record, Image.Image]]:
    for number, (film, patient_number) in enumerate(islice(_films(seed), images)):
        rng = np.random.default_rng([seed, _STREAM, 1, number])
        yield (
            _record(film, f"cxr{number:05d}", split_of(patient_number), rng),
            draw_radiograph(film, rng, size),
        )


def _films(seed: int) -> Iterator[tuple[Film, int]]:
    """Films without end, each with the number of its patient."""
    for number in count():
        rng = np.random.default_rng([seed, _STREAM, 0, number])
        patient = draw_patient(rng, number)
        for _ in range(int(rng.choice((1, 2, 3), p=_FILMS_OF_A_PATIENT))):
            yield draw_film(rng, patient), number


def _record(film: Film, name: str, split: Split, rng: np.random.Generator) -> Record:
    report = write_report(film, rng)
    return Record(
        id=name,
        image=f"images/{name}.jpg",
        split=split,
        texts=report.sentences,
        group=film.patient.name,
        labels=tuple(dict.fromkeys(finding.name for finding in film.findings)) or ("No Finding",),
        report=report.text,
        metadata=_metadata(film),
    )


def _metadata(film: Film) -> dict[str, MetadataValue]:
    sides = tuple(sorted({finding.side for finding in film.findings if finding.side is not None}))
    known: dict[str, MetadataValue] = {
        "view": film.view,
        "sex": film.patient.sex,
        "age": film.patient.age,
        "year": film.year,
        "exposure": film.exposure,
        "marker": film.marker,
        "tilt": round(film.tilt, 1) + 0.0,
        "indication": film.indication,
        "comparison": film.comparison,
    }
    sizes = [finding.size for finding in film.findings if finding.size]
    return known | ({"sides": sides} if sides else {}) | ({"severity": sizes[0]} if sizes else {})

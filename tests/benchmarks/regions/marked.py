"""Searches by boxes that a person drew around findings on films of a manifest.

A hit is right if the marked finding is among its labels. The film itself and others of its group are left
out. "Any film" is the share of right ones among all that can be hits: what hits by chance have.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import numpy as np
import typer
from numpy.typing import NDArray
from PIL import Image
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tests.benchmarks.regions.queries import (
    FIRST,
    Part,
    embed,
    find_grid,
    precision,
    query_vectors,
    require_regions,
)
from training.common.errors import DataError
from training.common.manifest import Manifest, Record
from training.imaging.images import decode_image
from training.models.encoder import Encoder
from training.models.image_input import Box

CHANCE: Final = "any film"
_WHOLE: Final = "whole film"
_PARTS: Final = ("regions", "crop")
_DRAWS: Final = 2000
_BOUNDS: Final = (0.025, 0.975)

_Place = Annotated[float, Field(ge=0)]
_Length = Annotated[float, Field(gt=0)]


class _Line(BaseModel):
    """A line of a file of boxes, in pixels of the upright picture."""

    model_config = ConfigDict(extra="forbid")

    id: str
    finding: str
    x: _Place
    y: _Place
    width: _Length
    height: _Length


@dataclass(frozen=True, slots=True)
class Mark:
    """A finding that is marked on the film of a row of a manifest."""

    row: int
    finding: str
    box: Box


@dataclass(frozen=True, slots=True)
class Search:
    """The precision of the searches by one mark, by the kind of query, and that of any film."""

    film: Record
    finding: str
    precision: Mapping[str, float]

    @property
    def alone(self) -> bool:
        """Whether the film has no other finding."""
        return set(self.film.labels) <= {self.finding}


@dataclass(frozen=True, slots=True)
class Share:
    """A mean, and the bounds of its 95 % interval."""

    mean: float
    low: float
    high: float


def read_marks(files: Sequence[Path], manifest: Manifest) -> list[Mark]:
    """Read boxes, one JSON object a line.

    Raises:
        DataError: A file cannot be read, has a malformed line or no line at all, or names a film or a label
            that the manifest has not, or a box reaches beyond its picture.
    """
    return [mark for file in files for mark in _marks(file, manifest)]


def _marks(file: Path, manifest: Manifest) -> list[Mark]:
    rows = {record.id: row for row, record in enumerate(manifest.records)}
    labels = {label for record in manifest.records for label in record.labels}
    marks = []
    for number, line in enumerate(_lines(file), 1):
        if line.id not in rows:
            raise DataError(f"Line {number} of {file}: the manifest has no film {line.id!r}.")
        if line.finding not in labels:
            raise DataError(f"Line {number} of {file}: no film of the manifest has {line.finding!r}.")
        width, height = _picture(manifest, rows[line.id]).size
        if line.x + line.width > width or line.y + line.height > height:
            raise DataError(f"Line {number} of {file}: the box reaches beyond {width} x {height} pixels.")
        box = Box(line.x / width, line.y / height, line.width / width, line.height / height)
        marks.append(Mark(rows[line.id], line.finding, box))
    if not marks:
        raise DataError(f"{file} has no boxes.")
    return marks


def _lines(file: Path) -> Iterator[_Line]:
    try:
        texts = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file} cannot be read: {error}.") from error
    for number, text in enumerate(texts, 1):
        try:
            yield _Line.model_validate_json(text)
        except ValidationError as error:
            keys = ", ".join(_Line.model_fields)
            raise DataError(f"Line {number} of {file} is no box: a JSON object has {keys}.") from error


def _picture(manifest: Manifest, row: int) -> Image.Image:
    return decode_image(manifest.image_path(manifest.records[row]))


def search_marks(
    encoder: Encoder, manifest: Manifest, marks: Sequence[Mark], within: str | None = None
) -> list[Search]:
    """Search all films of a manifest by each mark.

    Args:
        encoder: Has regions.
        manifest: The films.
        marks: Findings on some of them.
        within: Name in the metadata: films with another value in it cannot be hits.
    """
    require_regions(encoder)
    records = manifest.records
    vectors = embed(encoder, (_picture(manifest, row) for row in range(len(records))))
    queries = query_vectors(encoder, [_part(encoder, manifest, vectors[mark.row], mark) for mark in marks])
    searches = []
    for number, mark in enumerate(marks):
        film = records[mark.row]
        others = np.array([_may_be_hit(record, film, within) for record in records])
        right = np.array([mark.finding in record.labels for record in records])
        shares = {
            kind: precision(vectors, of_kind[number], others, right) for kind, of_kind in queries.items()
        }
        searches.append(Search(film, mark.finding, {**shares, CHANCE: float(right[others].mean())}))
    return searches


def _part(encoder: Encoder, manifest: Manifest, vector: NDArray[np.float32], mark: Mark) -> Part:
    image = _picture(manifest, mark.row)
    return Part(image, vector, find_grid(encoder, image), mark.box)


def _may_be_hit(record: Record, film: Record, within: str | None) -> bool:
    if record.id == film.id or (film.group is not None and record.group == film.group):
        return False
    return within is None or record.metadata.get(within) == film.metadata.get(within)


def find_share(values: Sequence[float], clusters: Sequence[str]) -> Share:
    """The mean of values, and its interval by the bootstrap over clusters (percentiles)."""
    _, places = np.unique(clusters, return_inverse=True)
    sums, counts = np.bincount(places, values), np.bincount(places)
    drawn = np.random.default_rng(0).integers(len(sums), size=(_DRAWS, len(sums)))
    means = sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
    low, high = np.quantile(means, _BOUNDS)
    return Share(float(np.mean(values)), float(low), float(high))


def print_searches(searches: Sequence[Search]) -> None:
    """Print the mean precision of all searches, of some of them and by finding."""
    films = len({search.film.id for search in searches})
    typer.echo(
        f"{len(searches)} findings marked on {films} films: precision at {FIRST} of the marked finding"
    )
    kinds = list(searches[0].precision)
    heads = [*kinds, *(f"{part} - whole" for part in _PARTS)]
    typer.echo(f"{'':34}" + "".join(f"{head:>22}" for head in heads))
    for name, some in _rows(searches):
        clusters = [search.film.group or search.film.id for search in some]
        columns = [[search.precision[kind] for search in some] for kind in kinds]
        columns += [[search.precision[part] - search.precision[_WHOLE] for search in some] for part in _PARTS]
        cells = [_cell(find_share(column, clusters)) for column in columns]
        typer.echo(f"{name:28}{len(some):6}" + "".join(f"{cell:>22}" for cell in cells))


def _rows(searches: Sequence[Search]) -> Iterator[tuple[str, list[Search]]]:
    """Names of rows, and the searches of those that have any."""
    rows = {
        "all": list(searches),
        "not trained on": [search for search in searches if search.film.split != "train"],
        "no other finding": [search for search in searches if search.alone],
        "other findings": [search for search in searches if not search.alone],
    }
    for search in sorted(searches, key=lambda search: search.finding):
        rows.setdefault(search.finding, []).append(search)
    yield from ((name, some) for name, some in rows.items() if some)


def _cell(share: Share) -> str:
    return f"{share.mean:.2f} ({share.low:.2f}..{share.high:.2f})"

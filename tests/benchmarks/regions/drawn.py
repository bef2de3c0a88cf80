"""Searches by a part of a film, and similarity maps, on drawn films with findings at known places.

Sample radiographs are drawn, and the small encoder of `demo-radiographs` is trained on them. Each finding of
other films is then marked by its box, and searched by in three ways: by the whole film, by a crop of the box
with a quarter of it around, as a square, and by the regions of the box. The precision is that of the marked
finding among the first ten of the other films. A map of `a chest radiograph showing` the finding, and one of
its region in another film, are measured on each film: how often the highest value lies in the box, and the
area under the ROC curve of its regions.
"""

import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

import numpy as np
import typer
from numpy.typing import NDArray
from PIL import Image

from tests.benchmarks.regions.queries import (
    FIRST,
    Bools,
    Floats,
    Part,
    embed,
    find_grid,
    pool,
    precision,
    query_vectors,
    require_regions,
)
from training.models.encoder import Encoder, load_encoder
from training.models.image_input import Box, RegionGrid
from training.recipes.load import load_recipe
from training.samples import write_sample_data
from training.samples.film_drawing import draw_radiograph, find_boxes
from training.samples.radiographs import Film, draw_film, draw_patient
from training.trainer.run import train

_SIZE: Final = 256
# Share of a region in the box from which on it counts as in it.
_INSIDE: Final = 0.2


@dataclass(frozen=True)
class Drawn:
    """A film of a patient of its own, with the boxes of its findings."""

    film: Film
    image: Image.Image
    boxes: Mapping[str, Box]


@dataclass(frozen=True)
class Embedded:
    """Films with their vectors (N, D) and the grids of their regions."""

    films: Sequence[Drawn]
    vectors: Floats
    grids: Sequence[RegionGrid]

    def marked(self) -> Iterator[tuple[int, str, Box]]:
        """Each finding that has a box, with the number of its film."""
        for number, film in enumerate(self.films):
            for name, box in film.boxes.items():
                yield number, name, box

    def part(self, number: int, box: Box) -> Part:
        """A box on one of the films."""
        return Part(self.films[number].image, self.vectors[number], self.grids[number], box)

    def having(self, finding: str) -> Bools:
        """True (N,) for films that have a box of a finding."""
        return np.array([finding in film.boxes for film in self.films])


def measure_drawn(images: int, films: int, epochs: int, settings: Sequence[str]) -> None:
    """Train on drawn films, search, map, and print.

    Args:
        images: Films drawn for the training, of which 70 % are trained on.
        films: Further films, to search among.
        epochs: Epochs of the training.
        settings: Further settings of the recipe.
    """
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        write_sample_data(data, images=images, seed=0)
        recipe = load_recipe("demo-radiographs", (f"train.epochs={epochs}", *settings))
        made = train(recipe, data / "radiographs", Path(folder) / "run", device="cpu")
        encoder = load_encoder(made.bundle, "cpu")
    require_regions(encoder)
    embedded = _embedded(encoder, list(islice(_films(), films)))
    _print_searches(encoder, embedded)
    _print_maps(encoder, embedded)


def _films() -> Iterator[Drawn]:
    """Frontal films without end."""
    rng = np.random.default_rng(7)
    while True:
        film, seed = draw_film(rng, draw_patient(rng, 0)), int(rng.integers(2**31))
        if film.view == "LATERAL":
            continue
        image = draw_radiograph(film, np.random.default_rng(seed), _SIZE)
        found = find_boxes(film, np.random.default_rng(seed), _SIZE)
        boxes = {name: Box(*box) for name, box in found.items()}
        yield Drawn(film, image, boxes)


def _embedded(encoder: Encoder, films: Sequence[Drawn]) -> Embedded:
    grids = [find_grid(encoder, film.image) for film in films]
    return Embedded(films, embed(encoder, [film.image for film in films]), grids)


def _print_searches(encoder: Encoder, embedded: Embedded) -> None:
    marked = list(embedded.marked())
    queries = query_vectors(encoder, [embedded.part(number, box) for number, _, box in marked])
    typer.echo(
        f"{len(marked)} findings on {len(embedded.films)} films: precision at {FIRST} of the marked finding"
    )
    typer.echo("                     alone on   among others")
    typer.echo("                     its film    on its film")
    for name, vectors in queries.items():
        alone: list[float] = []
        among: list[float] = []
        for (number, finding, _), query in zip(marked, vectors, strict=True):
            others = np.arange(len(embedded.films)) != number
            share = precision(embedded.vectors, query, others, embedded.having(finding))
            (alone if len(embedded.films[number].film.findings) == 1 else among).append(share)
        typer.echo(f"{name:20} {statistics.mean(alone):8.2f} {statistics.mean(among):14.2f}")
    chance = [float(embedded.having(name).mean()) for _, name, _ in marked]
    typer.echo(f"{'any film':20} {statistics.mean(chance):8.2f}")


def _print_maps(encoder: Encoder, embedded: Embedded) -> None:
    names = sorted({name for _, name, _ in embedded.marked()})
    texts = [f"a chest radiograph showing {name.lower()}" for name in names]
    queries = dict(zip(names, encoder.embed_texts(texts).vectors, strict=True))
    examples = _examples(embedded)
    typer.echo("maps of films with the finding  highest in the box  area under the curve")
    for kind in ("a text", "a region of another film"):
        hits: list[float] = []
        areas: list[float] = []
        chance: list[float] = []
        for number, name, box in embedded.marked():
            grid = embedded.grids[number]
            shares = grid.shares(box).ravel()
            inside = shares >= min(_INSIDE, shares.max())
            query = queries[name] if kind == "a text" else pool(*examples[number, name])
            values = grid.similarities(query).ravel()
            hits.append(float(inside[values.argmax()]))
            chance.append(float(inside.mean()))
            if not inside.all():
                areas.append(_area(values, inside))
        typer.echo(f"{kind:30} {statistics.mean(hits):18.2f} {statistics.mean(areas):21.2f}")
    typer.echo(f"{'by chance':30} {statistics.mean(chance):18.2f} {0.5:21.2f}")


def _examples(embedded: Embedded) -> Mapping[tuple[int, str], tuple[RegionGrid, Box]]:
    """For each finding of a film the regions of the same finding on the next film that has it."""
    of_name: dict[str, list[tuple[int, Box]]] = {}
    for number, name, box in embedded.marked():
        of_name.setdefault(name, []).append((number, box))
    return {
        (number, name): (embedded.grids[other], box)
        for name, films in of_name.items()
        for (number, _), (other, box) in zip(films, [*films[1:], films[0]], strict=True)
    }


def _area(values: Floats, inside: NDArray[np.bool_]) -> float:
    """Chance that a region in the box has a higher value than one outside."""
    higher = values[inside][:, None] > values[~inside][None]
    return float(higher.mean())

"""Searches by a part of a film beside those by the whole film.

Run `python -m tests.benchmarks.regions` for drawn films with findings at known places; it takes some ten
minutes of one core. With `--data FOLDER --boxes FILE --bundle BUNDLE` it measures on the films of a manifest,
by an encoder that is there: FILE has lines of JSON with the `id` of a film, the `finding` that is marked (one
of the manifest's labels), and `x`, `y`, `width` and `height` of its box in pixels of the upright picture.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks.regions.drawn import measure_drawn
from tests.benchmarks.regions.marked import print_searches, read_marks, search_marks
from training.common.errors import RecoquestError
from training.common.manifest import read_manifest
from training.models.encoder import load_encoder


def main(given: Sequence[str] | None = None) -> None:
    """Measure on drawn films or on those of a manifest, and print."""
    parser = _parser()
    arguments = parser.parse_args(given)
    films = (arguments.data, arguments.boxes, arguments.bundle)
    if films == (None, None, None):
        measure_drawn(arguments.images, arguments.films, arguments.epochs, arguments.set)
        return
    if None in films:
        parser.error("films of a manifest need --data, --boxes and --bundle together")
    try:
        manifest = read_manifest(arguments.data)
        marks = read_marks(arguments.boxes, manifest)
        searches = search_marks(load_encoder(arguments.bundle, "cpu"), manifest, marks, arguments.within)
    except RecoquestError as error:
        raise SystemExit(str(error)) from error
    print_searches(searches)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.regions", description=(__doc__ or "").partition("\n")[0]
    )
    drawn = parser.add_argument_group("drawn films")
    drawn.add_argument("--images", type=int, default=2000, help="films drawn, of which 70 %% are trained on")
    drawn.add_argument("--films", type=int, default=700, help="further films, to search among")
    drawn.add_argument("--epochs", type=int, default=25)
    drawn.add_argument("--set", action="append", default=[], help="a setting of the recipe; repeatable")
    marked = parser.add_argument_group("films of a manifest")
    marked.add_argument("--data", type=Path, help="a folder with manifest.jsonl")
    marked.add_argument("--boxes", type=Path, action="append", help="boxes of findings; repeatable")
    marked.add_argument("--bundle", type=Path, help="an encoder with regions")
    marked.add_argument("--within", metavar="FIELD", help="search films with the same value in this metadata")
    return parser


if __name__ == "__main__":
    main()

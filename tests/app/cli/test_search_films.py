"""A film is found by itself with a marker, whose value is the largest of its type."""

import json
from pathlib import Path

import pytest

from tests.app.conftest import make_bundle
from tests.e2e.work import Work
from tests.films import Film, drawn_film, film
from tests.image_files import png, tiff
from training.common.manifest import Record, read_manifest, write_manifest

_QUERIES = [f"{name}{form}" for name in ("marker", "pixel") for form in (".png", ".tif", "-rgb.png")]


def _write(path: Path, drawn: Film) -> None:
    path.write_bytes(png(drawn[..., None], 16))


@pytest.fixture(scope="module", params=[40, pytest.param(200, marks=pytest.mark.slow)])
def work(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Work:
    """Indexed films, and one of them with a marker or a single bright pixel, in several forms of files."""
    folder = tmp_path_factory.mktemp("films")
    # Weights that see the tissue: those of other numbers tell films by their mean.
    make_bundle(folder / "tiny", seed=1)
    data = folder / "data"
    data.mkdir()
    plain = film()
    _write(data / "plain.png", plain)
    for seed in range(request.param):
        _write(data / f"{seed}.png", drawn_film(seed))
    names = ["plain", *map(str, range(request.param))]
    write_manifest(data, [Record(id=name, image=f"{name}.png", split="test") for name in names])
    assert len(read_manifest(data).records) == request.param + 1
    work = Work(folder)
    work.run("index", "films", "--bundle", "tiny", "--data", "data")
    marker, pixel = plain.copy(), plain.copy()
    marker[4:20, 4:40] = 65_535
    pixel[0, 0] = 65_535
    for name, marked in (("marker", marker), ("pixel", pixel)):
        _write(folder / f"{name}.png", marked)
        (folder / f"{name}.tif").write_bytes(tiff(marked[..., None]))
        _write_colour(folder / f"{name}-rgb.png", marked)
    return work


@pytest.mark.parametrize("query", _QUERIES)
def test_a_film_with_a_marker_finds_the_film_without_it_first(work: Work, query: str) -> None:
    found = json.loads(work.run("search", "films", "--image", query, "-k", "3", "--json").stdout)
    assert found["hits"][0]["id"] == "plain"


def _write_colour(path: Path, drawn: Film) -> None:
    path.write_bytes(png(drawn[..., None].repeat(3, axis=-1), 16))

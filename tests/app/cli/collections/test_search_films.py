"""A film is found by itself with a marker, whose value is the largest of its type."""

import json
from pathlib import Path

from tests.app.conftest import make_bundle
from tests.e2e.work import Work
from tests.films import Film, drawn_film, film
from tests.image_files import png, tiff
from training.data.manifest import Record, read_manifest, write_manifest

_FILMS = 200


def _write(path: Path, drawn: Film) -> None:
    path.write_bytes(png(drawn[..., None], 16))


def test_a_film_with_a_marker_finds_the_film_without_it_first(tmp_path: Path) -> None:
    # Weights that see the tissue: those of other numbers tell films by their mean.
    make_bundle(tmp_path / "tiny", seed=1)
    data = tmp_path / "data"
    data.mkdir()
    plain = film()
    _write(data / "plain.png", plain)
    for seed in range(_FILMS):
        _write(data / f"{seed}.png", drawn_film(seed))
    names = ["plain", *map(str, range(_FILMS))]
    write_manifest(data, [Record(id=name, image=f"{name}.png", split="test") for name in names])
    assert len(read_manifest(data).records) == _FILMS + 1
    work = Work(tmp_path)
    work.run("index", "films", "--bundle", "tiny", "--data", "data")

    marker, pixel = plain.copy(), plain.copy()
    marker[4:20, 4:40] = 65_535
    pixel[0, 0] = 65_535
    for name, marked in (("marker", marker), ("pixel", pixel)):
        _write(tmp_path / f"{name}.png", marked)
        (tmp_path / f"{name}.tif").write_bytes(tiff(marked[..., None]))
        _write_colour(tmp_path / f"{name}-rgb.png", marked)
        for query in (f"{name}.png", f"{name}.tif", f"{name}-rgb.png"):
            found = json.loads(work.run("search", "films", "--image", query, "-k", "3", "--json").stdout)
            assert found["hits"][0]["id"] == "plain", query


def _write_colour(path: Path, drawn: Film) -> None:
    path.write_bytes(png(drawn[..., None].repeat(3, axis=-1), 16))

"""Boxes of findings on films of a manifest: how they are read, searched by and counted."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks.regions.marked import CHANCE, Mark, find_share, read_marks, search_marks
from tests.benchmarks.regions.queries import crop, precision
from tests.index.pictures import smooth_picture
from tests.training.models.tiny import tiny_model, tiny_preprocessing
from training.common.errors import DataError
from training.common.manifest import Manifest, Record, read_manifest, write_manifest
from training.models.encoder import Encoder
from training.models.image_input import Box

_LABELS = (("Mass",), ("Mass",), ("Mass", "Edema"), (), ("Mass",))


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    """Five films of 40 x 30 pixels; the first two are of one patient, and one comes from elsewhere."""
    for number in range(5):
        smooth_picture(number).resize((40, 30)).save(tmp_path / f"{number}.png")
    records = [
        Record(
            id=f"film-{number}",
            image=f"{number}.png",
            split="test",
            group="patient" if number < 2 else f"other-{number}",
            labels=labels,
            metadata={"source": "here" if number < 4 else "there"},
        )
        for number, labels in enumerate(_LABELS)
    ]
    write_manifest(tmp_path, records)
    return read_manifest(tmp_path)


def _file(folder: Path, **changes: object) -> Path:
    line = {"id": "film-2", "finding": "Edema", "x": 10, "y": 15, "width": 20, "height": 15, **changes}
    file = folder / "boxes.jsonl"
    file.write_text(json.dumps(line) + "\n", encoding="utf-8")
    return file


def test_boxes_in_pixels_become_fractions_of_their_film(tmp_path: Path, manifest: Manifest) -> None:
    assert read_marks([_file(tmp_path)], manifest) == [Mark(2, "Edema", Box(0.25, 0.5, 0.5, 0.5))]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"id": "film-9"}, "no film 'film-9'"),
        ({"finding": "Nodule"}, "no film of the manifest has 'Nodule'"),
        ({"width": 31}, "beyond 40 x 30 pixels"),
        ({"height": 0}, "is no box"),
        ({"x": None}, "is no box"),
        ({"side": "left"}, "is no box"),
    ],
)
def test_lines_that_mark_nothing_are_named(
    tmp_path: Path, manifest: Manifest, changes: dict[str, object], reason: str
) -> None:
    with pytest.raises(DataError, match=f"Line 1 .*{reason}"):
        read_marks([_file(tmp_path, **changes)], manifest)


def test_an_empty_and_a_missing_file_are_named(tmp_path: Path, manifest: Manifest) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    with pytest.raises(DataError, match="has no boxes"):
        read_marks([empty], manifest)
    with pytest.raises(DataError, match="cannot be read"):
        read_marks([tmp_path / "missing.jsonl"], manifest)


def test_hits_are_other_films_of_other_patients(manifest: Manifest) -> None:
    encoder = Encoder(tiny_model(), tiny_preprocessing())
    mark = Mark(0, "Mass", Box(0.25, 0.25, 0.5, 0.5))
    (search,) = search_marks(encoder, manifest, [mark])
    # Two of the three films of other patients, which are fewer than ten.
    assert search.precision == {
        "whole film": pytest.approx(2 / 3),
        "crop": pytest.approx(2 / 3),
        "regions": pytest.approx(2 / 3),
        CHANCE: pytest.approx(2 / 3),
    }
    (search,) = search_marks(encoder, manifest, [mark], within="source")
    assert search.precision[CHANCE] == pytest.approx(1 / 2)


def test_precision_counts_the_ten_nearest_candidates() -> None:
    angles = np.linspace(0, 1, 30)
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    candidates = np.ones(30, np.bool_)
    candidates[:2] = False
    right = np.zeros(30, np.bool_)
    right[[0, 3, 11, 12]] = True
    assert precision(vectors, vectors[0], candidates, right) == pytest.approx(0.2)


def test_a_crop_is_the_square_around_a_box_within_the_film() -> None:
    picture = smooth_picture(0).resize((200, 100))
    assert crop(picture, Box(0.4, 0.4, 0.1, 0.1)).size == (30, 30)
    corner = crop(picture, Box(0.9, 0.8, 0.1, 0.2))
    assert corner.tobytes() == picture.crop((170, 70, 200, 100)).tobytes()
    assert crop(picture, Box(0.1, 0.1, 0.8, 0.8)).size == (100, 100)


def test_the_interval_is_over_films_and_holds_the_mean() -> None:
    values = [0.0, 1.0] * 20
    own = find_share(values, [str(number) for number in range(40)])
    shared = find_share(values, [str(number % 2) for number in range(40)])
    assert own.mean == shared.mean == 0.5
    assert 0.3 < own.low < 0.5 < own.high < 0.7
    # Two films alone: either may be drawn twice.
    assert (shared.low, shared.high) == (0.0, 1.0)

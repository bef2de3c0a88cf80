from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from training.evaluation import retrieval
from training.evaluation.geometry import (
    CosineCounts,
    geometry,
    label_cosines,
    save_histogram,
    text_image_cosines,
    uniformity,
)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrieval, "_SCORES_PER_CHUNK", 20)


def unit_vectors(rows: int, seed: int) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    vectors = np.random.default_rng(seed).normal(size=(rows, 5)).astype(np.float32)
    normal: np.ndarray[tuple[int, int], np.dtype[np.float32]] = vectors / np.linalg.norm(
        vectors, axis=1, keepdims=True
    )
    return normal


def test_geometry_equals_the_sums_over_pairs() -> None:
    images, texts = unit_vectors(7, 0), unit_vectors(11, 1)
    matches = [[row % 7] for row in range(10)] + [[0, 3]]
    pairs = [(text, image) for text in range(11) for image in matches[text]]
    others = [(text, image) for text, image in product(range(11), range(7)) if image not in matches[text]]
    measured = geometry(images, texts, matches)
    distances = [np.sum((texts[text] - images[image]) ** 2) for text, image in pairs]
    assert measured.alignment == pytest.approx(np.mean(distances), rel=1e-5)
    assert measured.paired_cosine == pytest.approx(
        np.mean([texts[t] @ images[i] for t, i in pairs]), abs=1e-6
    )
    assert measured.unpaired_cosine == pytest.approx(
        np.mean([texts[t] @ images[i] for t, i in others]), abs=1e-6
    )
    for vectors, value in ((images, measured.image_uniformity), (texts, measured.text_uniformity)):
        kernel = [np.exp(-2 * np.sum((a - b) ** 2)) for a, b in combinations(vectors, 2)]
        assert value == pytest.approx(np.log(np.mean(kernel)), rel=1e-5)


def test_what_cannot_be_measured_is_none() -> None:
    one = unit_vectors(1, 3)
    assert uniformity(one) is None
    measured = geometry(one, one, [[0]])
    assert measured.unpaired_cosine is None
    with pytest.raises(ValueError, match="no text belongs"):
        geometry(one, one, [[]])


def test_every_pair_is_counted_once() -> None:
    images, texts = unit_vectors(7, 0), unit_vectors(11, 1)
    counted = text_image_cosines(images, texts, [[row % 7] for row in range(11)])
    assert counted.paired.sum() == 11
    assert counted.unpaired.sum() == 11 * 6
    equal = np.tile(images[:1], (4, 1))
    assert text_image_cosines(equal, equal, [[0], [1], [2], [3]]).paired[-1] == 4


def test_images_that_share_a_label_are_apart() -> None:
    vectors = unit_vectors(6, 4)
    labels: list[tuple[str, ...]] = [("a",), ("a", "b"), ("b",), (), ("c",), ("a",)]
    counted = label_cosines(vectors, labels)
    sharing = [
        (one, two) for one, two in combinations([0, 1, 2, 4, 5], 2) if set(labels[one]) & set(labels[two])
    ]
    assert counted.paired.sum() == len(sharing) == 4
    assert counted.unpaired.sum() == 6
    assert counted.paired_mean == pytest.approx(
        np.mean([vectors[a] @ vectors[b] for a, b in sharing]), abs=1e-6
    )


def counts(seed: int = 0) -> CosineCounts:
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(40, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return text_image_cosines(vectors, vectors, [[row] for row in range(40)])


def test_the_picture_is_drawn_and_the_same_every_time(tmp_path: Path) -> None:
    for name, seed in (("one.png", 0), ("two.png", 0), ("other.png", 1)):
        save_histogram(counts(seed), tmp_path / name, title="Cosines")
    picture = Image.open(tmp_path / "one.png")
    assert picture.size == (840, 480)
    colours = picture.convert("RGB").getcolors(100_000)
    assert colours is not None
    assert len(colours) > 50
    one, two, other = ((tmp_path / f"{name}.png").read_bytes() for name in ("one", "two", "other"))
    assert one == two != other


def test_a_side_without_pairs_is_left_out(tmp_path: Path) -> None:
    one = np.eye(1, 4, dtype=np.float32)
    save_histogram(text_image_cosines(one, one, [[0]]), tmp_path / "one.png", title="Cosines")
    assert Image.open(tmp_path / "one.png").size == (840, 480)

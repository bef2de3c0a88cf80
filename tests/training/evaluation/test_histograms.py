from pathlib import Path

import numpy as np
from PIL import Image

from training.evaluation.geometry import CosineCounts, text_image_cosines
from training.evaluation.histograms import save_histogram


def counts(seed: int = 0) -> CosineCounts:
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(40, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return text_image_cosines(vectors, vectors, [[row] for row in range(40)])


def test_the_picture_is_drawn_and_the_same_every_time(tmp_path: Path) -> None:
    for name in ("one.png", "two.png"):
        save_histogram(counts(), tmp_path / name, title="Cosines")
    picture = Image.open(tmp_path / "one.png")
    assert picture.size == (840, 480)
    colours = picture.convert("RGB").getcolors(100_000)
    assert colours is not None
    assert len(colours) > 50
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()


def test_other_cosines_give_another_picture(tmp_path: Path) -> None:
    save_histogram(counts(0), tmp_path / "one.png", title="Cosines")
    save_histogram(counts(1), tmp_path / "two.png", title="Cosines")
    assert (tmp_path / "one.png").read_bytes() != (tmp_path / "two.png").read_bytes()


def test_a_side_without_pairs_is_left_out(tmp_path: Path) -> None:
    one = np.eye(1, 4, dtype=np.float32)
    save_histogram(text_image_cosines(one, one, [[0]]), tmp_path / "one.png", title="Cosines")
    assert Image.open(tmp_path / "one.png").size == (840, 480)

"""Two encoders on the same images: their figures by image, chance, and how often an equal one is better."""

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.training.evaluation.encoders import BlindToTexts
from training.common.manifest import Rejections
from training.common.record import Record
from training.evaluation.embedding import EmbeddedManifest
from training.evaluation.evaluate import measure
from training.evaluation.paired import PairedComparison, compare_figures, figures_by_image
from training.evaluation.similarity import Vectors


def _unit(vectors: NDArray[np.float64]) -> Vectors:
    unit: Vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    return unit


def _embedded(
    random: np.random.Generator, images: int, noise: float, texts: Sequence[int]
) -> EmbeddedManifest:
    """Images with texts that lie near to them, or anywhere where the noise is infinite."""
    records = tuple(
        Record(
            id=f"i{n}",
            image="a.png",
            split="test",
            texts=tuple(f"text {n} {m}" if n % 9 else "the same" for m in range(texts[n % len(texts)])),
            labels=(f"label{n % 4}",) if n % 5 else (),
        )
        for n in range(images)
    )
    owner = np.repeat(np.arange(images), [len(record.texts) for record in records])
    vectors = random.standard_normal((images, 16))
    drawn = random.standard_normal((len(owner), 16))
    near = drawn if np.isinf(noise) else vectors[owner] + noise * drawn
    of_text = [text for record in records for text in record.texts]
    return EmbeddedManifest(
        records, _unit(vectors), tuple(of_text), _unit(near), owner, Rejections(images), 0
    )


def _compared(first: EmbeddedManifest, second: EmbeddedManifest, metric: str = "rsum") -> PairedComparison:
    groups = np.arange(len(first.records))
    return compare_figures(figures_by_image(first)[metric], figures_by_image(second)[metric], groups)


def test_figures_are_those_of_an_evaluation() -> None:
    embedded = _embedded(np.random.default_rng(0), 60, 1.0, (2, 0, 1))
    expected = measure(BlindToTexts(), embedded).metrics()
    figures = figures_by_image(embedded)
    assert len(figures) == 9
    whole = np.ones((1, 60))
    for name, figure in figures.items():
        assert figure.of(whole)[0] == pytest.approx(expected[name], abs=1e-6), name
    assert figures["rsum"].images == 40
    assert figures["image_precision_at_10"].images == 48


@pytest.mark.parametrize("texts", [(1,), (5,), (1, 3)])
def test_chance_is_what_random_vectors_give(texts: tuple[int, ...]) -> None:
    random = np.random.default_rng(1)
    actual = [figures_by_image(_embedded(random, 50, np.inf, texts)) for _ in range(40)]
    whole = np.ones((1, 50))
    for name in actual[0]:
        values = [figures[name].of(whole)[0] for figures in actual]
        error = np.std(values) / np.sqrt(len(values))
        assert np.mean(values) == pytest.approx(actual[0][name].chance, abs=4 * error + 0.1), name


@pytest.mark.slow
@pytest.mark.parametrize("noise", [1.5, np.inf])
def test_a_model_as_good_as_the_other_is_hardly_ever_better(noise: float) -> None:
    """200 draws of held-out images, on each of which both models err by themselves."""
    better = 0
    for seed in range(200):
        random = np.random.default_rng(seed)
        actual = _compared(_embedded(random, 100, noise, (1,)), _embedded(random, 100, noise, (1,)))
        better += actual.low > 0 and actual.above_chance
    assert better <= 10


def test_a_better_model_is_better_and_one_that_only_stays_above_a_loss_is_at_most_chance() -> None:
    random = np.random.default_rng(3)
    at_chance, worse, good = (_embedded(random, 120, noise, (1,)) for noise in (np.inf, 2.0, 1.0))
    actual = _compared(worse, good)
    assert actual.low > 0
    assert actual.low < actual.after - actual.before < actual.high
    assert actual.above_chance
    assert not _compared(good, at_chance).above_chance
    assert _compared(at_chance, at_chance).low == 0


def test_images_of_a_patient_are_drawn_together() -> None:
    random = np.random.default_rng(4)
    first, second = (_embedded(random, 120, noise, (1,)) for noise in (1.5, 1.4))
    figures = [figures_by_image(one)["rsum"] for one in (first, second)]
    alone = compare_figures(figures[0], figures[1], np.arange(120))
    # Twelve patients whose images are alike in what is found of them.
    order = np.argsort(np.argsort(figures[1].right.sum(axis=0) - figures[0].right.sum(axis=0)))
    together = compare_figures(figures[0], figures[1], order // 10)
    assert together.high - together.low > 1.5 * (alone.high - alone.low)

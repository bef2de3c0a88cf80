"""Contrastive-Binary: the classifier's answers pair by pair, and which fakes are drawn."""

import math
from collections import Counter

import pytest
import torch

from tests.training.objectives.reference import MATCHES, features, mask_of, random_embeddings
from training.models.features import Features
from training.objectives import ContrastiveBinary
from training.objectives.contrastive_binary import draw_each


def build() -> ContrastiveBinary:
    """Return the objective in evaluation, with the same weights each time."""
    torch.manual_seed(0)
    return ContrastiveBinary(embedding_dim=5, hidden=3).double().eval()


def slow_loss(objective: ContrastiveBinary, batch: Features, fakes: list[list[int]]) -> float:
    """Half the cross-entropy of all real pairs and half the mean over these fakes of each image."""
    images, texts = batch["image"].embedding, batch["text"].embedding

    def cost(image: int, text: int, sign: int) -> float:
        return math.log1p(math.exp(sign * objective.scores(images[[image]], texts[[text]]).item()))

    size = len(images)
    real = sum(cost(i, i, -1) for i in range(size))
    fake = sum(sum(cost(i, j, 1) for j in own) / len(own) for i, own in enumerate(fakes) if own)
    return (real + fake) / (2 * size)


@pytest.mark.parametrize("pairs", MATCHES)
def test_evaluation_is_the_mean_over_all_fakes(pairs: tuple[tuple[int, int], ...]) -> None:
    objective, mask = build(), mask_of(5, *pairs)
    batch = features(*random_embeddings(5), mask)
    fakes = [[j for j, matches in enumerate(row) if not matches] for row in mask.tolist()]
    output = objective.compute(batch)
    assert float(output.total.detach()) == pytest.approx(slow_loss(objective, batch, fakes), abs=1e-12)
    torch.testing.assert_close(output.total, (output.terms["real"] + output.terms["fake"]) / 2)


@pytest.mark.parametrize("seed", range(3))
def test_training_draws_one_fake_for_each_image(seed: int) -> None:
    objective, mask = build().train(), mask_of(5, (0, 2), (1, 3))
    batch = features(*random_embeddings(5), mask)
    torch.manual_seed(seed)
    fakes = [[column] for column in draw_each(~mask).tolist()]
    torch.manual_seed(seed)
    expected = slow_loss(objective, batch, fakes)
    assert float(objective(batch).detach()) == pytest.approx(expected, abs=1e-12)


def test_all_that_may_be_drawn_are_equally_likely_and_nothing_else_is_drawn() -> None:
    allowed = torch.tensor([[False, True, True, True], [True, False, False, True], [False] * 4])
    found = Counter(tuple(draw_each(allowed).tolist()) for _ in range(3000))
    assert set(found) == {(a, b, 0) for a in (1, 2, 3) for b in (0, 3)}
    assert all(abs(count - 500) < 100 for count in found.values())


@pytest.mark.parametrize("training", [True, False])
def test_images_without_a_fake_cost_their_real_pair_alone(training: bool) -> None:
    everything = torch.ones((3, 3), dtype=torch.bool)
    output = build().train(training).compute(features(*random_embeddings(3), everything))
    assert float(output.terms["fake"]) == 0
    torch.testing.assert_close(output.total, output.terms["real"] / 2)


def test_the_classifier_has_one_hidden_layer() -> None:
    first, relu, last = ContrastiveBinary(embedding_dim=6).classifier
    assert isinstance(relu, torch.nn.ReLU)
    assert [first.weight.shape, last.weight.shape] == [(512, 12), (1, 512)]

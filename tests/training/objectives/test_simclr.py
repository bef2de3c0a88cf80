import math

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor
from torch.nn.functional import pad

from tests.training.objectives.cases import random_batch
from tests.training.objectives.reference import CONTEXT, U, V, random_embeddings
from training.common.errors import RecipeError
from training.models.features import Features, ModalityFeatures
from training.objectives.registry import parse_objective
from training.objectives.simclr import SimCLR, SimCLRSettings
from training.objectives.similarity import cosine_matrix

pytestmark = pytest.mark.usefixtures("one_thread")

# Worked out by the slow reference below.
GOLDEN = {0.1: 0.254299691234, 0.5: 0.954501792464}


def views(first: Tensor, second: Tensor) -> Features:
    return Features({"image": ModalityFeatures(first), "view": ModalityFeatures(second)})


def build(temperature: float = 0.1) -> SimCLR:
    return SimCLRSettings(temperature=temperature).build(CONTEXT)


def slow_nt_xent(first: Tensor, second: Tensor, temperature: float) -> float:
    """Chen et al.'s equation 1, with the views one after another: 0 and 1 of an image, 2 and 3, and so on."""
    every = [view.tolist() for pair in zip(first, second, strict=True) for view in pair]

    def similarity(a: list[float], b: list[float]) -> float:
        lengths = math.sqrt(sum(x * x for x in a)) * math.sqrt(sum(x * x for x in b))
        return sum(x * y for x, y in zip(a, b, strict=True)) / lengths

    total = 0.0
    for place, view in enumerate(every):
        others = {
            other: math.exp(similarity(view, found) / temperature)
            for other, found in enumerate(every)
            if other != place
        }
        partner = place + 1 if place % 2 == 0 else place - 1
        total -= math.log(others[partner] / sum(others.values()))
    return total / len(every)


@pytest.mark.parametrize("temperature", sorted(GOLDEN))
def test_golden_values(temperature: float) -> None:
    assert slow_nt_xent(U, V, temperature) == pytest.approx(GOLDEN[temperature], abs=1e-11)
    assert float(build(temperature)(views(U, V)).total) == pytest.approx(GOLDEN[temperature], abs=1e-11)


@pytest.mark.parametrize("size", [2, 3, 7])
def test_equals_the_slow_reference(size: int) -> None:
    first, second = random_embeddings(size)
    expected = slow_nt_xent(first, second, 0.2)
    assert float(build(0.2)(views(first, second)).total) == pytest.approx(expected, abs=1e-12)


def test_blades_are_compared_by_their_determinants() -> None:
    """Views whose blades are one vector and another that all share: the cosine is that of the first."""
    first, second = random_embeddings(5)
    shared = torch.eye(6, dtype=torch.float64)[5].expand(5, 6)

    def blades(vectors: Tensor) -> Tensor:
        return torch.stack((pad(vectors, (0, 1)), shared), dim=1)

    expected = build()(views(first, second)).total
    found = build()(views(blades(first), blades(second))).total
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_views_may_change_places() -> None:
    first, second = random_embeddings(5)
    there, back = build()(views(first, second)).total, build()(views(second, first)).total
    torch.testing.assert_close(there, back, rtol=0, atol=1e-12)


def test_one_image_has_nothing_to_be_told_from() -> None:
    first, second = random_embeddings(1)
    assert float(build()(views(first, second)).total) == 0


def test_term_is_how_alike_views_of_an_image_are() -> None:
    first, second = random_embeddings(5)
    output = build()(views(first.requires_grad_(), second))
    expected = cosine_matrix(first, second).diagonal().mean().detach()
    torch.testing.assert_close(output.terms["view_similarity"], expected)
    assert not output.terms["view_similarity"].requires_grad


def test_free_views_find_each_other_and_spread() -> None:
    first, second = (batch.requires_grad_() for batch in random_embeddings(12, 8))
    optimizer = torch.optim.Adam([first, second], lr=0.05)
    for _ in range(100):
        optimizer.zero_grad()
        torch.autograd.backward(build()(views(first, second)).total)
        optimizer.step()
    cosines = cosine_matrix(first, second).detach()
    assert torch.equal(cosines.argmax(dim=1), torch.arange(12))
    assert cosines.diagonal().min() > 0.8
    assert cosine_matrix(first, first).detach().fill_diagonal_(0).max() < 0.5


def test_what_is_missing_is_said() -> None:
    batch = random_batch()
    assert build().requires == {"views"}
    assert SimCLRSettings().modalities == {"image"}
    with pytest.raises(RecipeError, match="two views"):
        build()(Features({"image": batch["image"]}))
    with pytest.raises(ValidationError):
        SimCLRSettings(temperature=0)
    with pytest.raises(ValidationError, match="images alone"):
        parse_objective({"name": "simclr", "pairs": [["image", "text"]]})

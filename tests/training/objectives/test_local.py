"""Local features without their padding, and their cosines."""

import math

import pytest
import torch
from torch import Tensor

from tests.training.objectives.local_reference import local_batch, plain_cosines, random_entries
from training.common.errors import RecipeError
from training.models.features import ModalityFeatures
from training.objectives.local import (
    LocalEntries,
    masked_scores,
    normalised_weights,
    over_norms,
    self_cosines,
)

A = random_entries((4, 4), seed=1).values


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        (torch.tensor([[0.2, 0.3, 0.5], [0.1, 0.8, 0.1]]), [[0.4, 0.6, 0.0], [0.1, 0.8, 0.1]]),
        (None, [[0.5, 0.5, 0.0], [1 / 3, 1 / 3, 1 / 3]]),
    ],
)
def test_weights_are_normalised_over_real_entries_and_not_learned(
    weights: Tensor | None, expected: list[list[float]]
) -> None:
    mask = torch.tensor([[True, True, False], [True, True, True]])
    given = None if weights is None else weights.clone().requires_grad_()
    found = normalised_weights(given, mask, torch.float64)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-7)
    assert not found.requires_grad


@pytest.mark.parametrize("garbage", [1e30, math.inf, math.nan])
def test_padding_is_removed_whatever_it_holds(garbage: float) -> None:
    text = local_batch()["text"]
    clean = LocalEntries.of(text)
    assert text.local is not None
    assert text.local_weights is not None
    local = torch.where(clean.mask.unsqueeze(2), text.local, garbage).requires_grad_()
    weights = torch.where(clean.mask, text.local_weights, garbage)
    dirty = LocalEntries.of(ModalityFeatures(text.embedding, local, text.local_mask, weights))
    assert torch.equal(dirty.values, clean.values)
    assert torch.equal(dirty.weights, clean.weights)
    torch.autograd.backward(dirty.values.exp().sum())
    assert local.grad is not None
    assert torch.equal(local.grad, clean.values.exp() * clean.mask.unsqueeze(2))


def test_without_a_mask_all_entries_are_real_and_half_precision_becomes_full() -> None:
    local = torch.randn(2, 3, 4, dtype=torch.float64)
    entries = LocalEntries.of(ModalityFeatures(torch.zeros(2, 4), local=local))
    assert entries.mask.all()
    assert entries.values is local
    torch.testing.assert_close(entries.weights, torch.full((2, 3), 1 / 3, dtype=torch.float64))
    half = LocalEntries.of(ModalityFeatures(torch.zeros(2, 4), local=local.bfloat16()))
    assert half.values.dtype == half.weights.dtype == torch.float32


def test_says_what_to_do_when_the_encoder_has_no_local_features() -> None:
    with pytest.raises(RecipeError, match=r"set model\.local_features to true"):
        LocalEntries.of(ModalityFeatures(torch.zeros(2, 4)))


def test_softmax_of_masked_scores_leaves_padding_out_and_stays_finite_without_real_entries() -> None:
    scores = torch.tensor([[[1.0, 2.0, 9.0]], [[1.0, 2.0, 9.0]]], requires_grad=True)
    mask = torch.tensor([[True, True, False], [False, False, False]])
    found = masked_scores(scores, mask).softmax(dim=2)
    torch.testing.assert_close(found[0, 0, :2], torch.tensor([1.0, 2.0]).softmax(0))
    assert found[0, 0, 2] == 0
    torch.autograd.backward(masked_scores(scores, mask).logsumexp(dim=2).sum())
    assert scores.grad is not None
    assert torch.isfinite(scores.grad).all()
    assert not scores.grad[1].any()


def test_self_cosines_and_their_gradient_are_those_of_normalised_vectors() -> None:
    probe = torch.randn(2, 4, 4, dtype=torch.float64)
    one, two = A.clone().requires_grad_(), A.clone().requires_grad_()
    found, expected = self_cosines(one), plain_cosines(two, two)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-14)
    torch.autograd.backward((found * probe).sum() + (expected * probe).sum())
    torch.testing.assert_close(one.grad, two.grad, rtol=0, atol=1e-13)
    # In float32 as exact as with vectors that are normalized first.
    many = torch.randn(8, 49, 512) * 100
    assert (self_cosines(many) - plain_cosines(many.double(), many.double())).abs().max() < 1e-6


def test_products_over_norms_of_rows_and_columns() -> None:
    products = torch.tensor([[[6.0, 0.0, 1.0], [0.0, 20.0, 0.0]]], dtype=torch.float64)
    squares = torch.tensor([[4.0, 25.0]], dtype=torch.float64), torch.tensor([[9.0, 16.0, 0.0]]).double()
    expected = torch.tensor([[[1.0, 0.0, 5e6], [0.0, 1.0, 0.0]]], dtype=torch.float64)
    torch.testing.assert_close(over_norms(products, *squares), expected)

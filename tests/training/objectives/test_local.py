import math

import pytest
import torch

from tests.training.objectives.local_reference import local_batch, with_padding_of
from training.common.errors import RecipeError
from training.models.features import ModalityFeatures
from training.objectives.local_entries import LocalEntries, masked_scores, normalised_weights


def test_weights_are_normalised_over_real_entries_and_not_learned() -> None:
    weights = torch.tensor([[0.2, 0.3, 0.5], [0.1, 0.8, 0.1]], requires_grad=True)
    mask = torch.tensor([[True, True, False], [True, True, True]])
    found = normalised_weights(weights, mask, torch.float64)
    expected = torch.tensor([[0.4, 0.6, 0.0], [0.1, 0.8, 0.1]], dtype=torch.float64)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-7)
    assert not found.requires_grad


def test_without_weights_all_real_entries_weigh_the_same() -> None:
    mask = torch.tensor([[True, True, False], [False, True, False]])
    found = normalised_weights(None, mask, torch.float32)
    assert torch.equal(found, torch.tensor([[0.5, 0.5, 0.0], [0.0, 1.0, 0.0]]))


@pytest.mark.parametrize("garbage", [1e30, math.inf, math.nan])
def test_padding_is_removed_whatever_it_holds(garbage: float) -> None:
    clean = LocalEntries.of(local_batch()["text"])
    dirty = LocalEntries.of(with_padding_of(local_batch(), garbage)["text"])
    assert torch.equal(dirty.values, clean.values)
    assert torch.equal(dirty.weights, clean.weights)
    assert not dirty.values[~dirty.mask].any()


def test_without_a_mask_all_entries_are_real() -> None:
    local = torch.randn(2, 3, 4, dtype=torch.float64)
    entries = LocalEntries.of(ModalityFeatures(torch.zeros(2, 4), local=local))
    assert entries.mask.all()
    assert entries.values is local
    torch.testing.assert_close(entries.weights, torch.full((2, 3), 1 / 3, dtype=torch.float64))


def test_half_precision_becomes_full() -> None:
    local = torch.randn(2, 3, 4).bfloat16()
    weights = torch.rand(2, 3).bfloat16()
    entries = LocalEntries.of(ModalityFeatures(torch.zeros(2, 4), local=local, local_weights=weights))
    assert entries.values.dtype == entries.weights.dtype == torch.float32
    torch.testing.assert_close(entries.weights.sum(dim=1), torch.ones(2))


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

"""Pairs of modalities: their mean, and which texts match which items, whichever modality is first."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.training.objectives.cases import (
    blades_of,
    build,
    build_case,
    cases,
    learnable,
    random_batch,
    with_features,
)
from training.models.config import Modality
from training.objectives.base import parse_objective

# Equal in both directions, so that the order of a pair doesn't matter.
SYMMETRIC = pytest.mark.parametrize(
    "name", ["ifm", "infonce", "orthogonality", "quest", "reco", "sigmoid", "vse", "vse-all"]
)


def losses(name: str, pair: tuple[Modality, Modality]) -> list[Tensor]:
    """Return the losses of a pair of modalities with a mask and without; sounds have the images' features."""
    found = []
    for masked in (True, False):
        batch = random_batch(masked=masked)
        batch = replace(batch, modalities={**batch.modalities, "audio": batch["image"]})
        objective = build(cases()[name].model_copy(update={"pairs": (pair,)}), batch)
        found.append(objective(batch).detach())
    return found


@SYMMETRIC
def test_the_mask_holds_for_texts_whichever_modality_is_first(name: str) -> None:
    masked, unmasked = losses(name, ("image", "text"))
    assert abs(float(masked - unmasked)) > 1e-6
    others: list[tuple[Modality, Modality]] = [("text", "image"), ("audio", "text")]
    for pair in others:
        torch.testing.assert_close(losses(name, pair)[0], masked, rtol=0, atol=1e-12)
    # Which texts images share says nothing about their sounds.
    assert torch.equal(*losses(name, ("image", "audio")))


def test_several_pairs_have_their_mean_and_terms_of_their_own() -> None:
    batch, pairs = random_batch(), (("image", "text"), ("text", "image"))
    several, first, second = (
        build(parse_objective({"name": "infonce", "image_weight": 1, "pairs": each}), batch).compute(batch)
        for each in (pairs, pairs[:1], pairs[1:])
    )
    torch.testing.assert_close(several.total, (first.total + second.total) / 2)
    terms = {f"image-text/{name}": term for name, term in first.terms.items()}
    terms |= {f"text-image/{name}": term for name, term in second.terms.items()}
    assert dict(several.terms) == terms


@pytest.mark.parametrize(
    ("name", "pairs", "sentence"),
    [
        ("reco", [], "pairs holds one pair of two modalities or more, none of them twice"),
        ("reco", [["image", "image"]], "pairs holds one pair of two modalities or more"),
        ("reco", [["image", "text"], ["image", "text"]], "pairs holds one pair of two modalities or more"),
        ("labels", [["image", "text"]], r"this objective encodes images alone: leave objective\.pairs out"),
        ("ltd", [["image", "audio"]], r"ltd decodes texts: name text in objective\.pairs"),
    ],
)
def test_pairs_that_make_no_sense_are_refused(name: str, pairs: list[list[str]], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        parse_objective({"name": name, "pairs": pairs})


@pytest.mark.parametrize("name", [name for name in sorted(cases()) if cases()[name].pairs])
def test_a_batch_in_which_everything_matches_is_finite(name: str) -> None:
    batch = replace(random_batch(blades=blades_of(name)), positive_mask=torch.ones((6, 6), dtype=torch.bool))
    values = {key: value.requires_grad_() for key, value in learnable(batch).items()}
    total = build_case(name, batch)(with_features(batch, values))
    torch.autograd.backward(total)
    assert total.isfinite()
    assert all(value.grad.isfinite().all() for value in values.values() if value.grad is not None)

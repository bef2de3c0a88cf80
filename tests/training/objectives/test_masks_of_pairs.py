"""Which texts belong to which items holds for every pair of modalities, whichever comes first."""

import pytest
import torch

from tests.training.objectives.cases import build, random_batch
from training.models.features import Features
from training.objectives.registry import parse_objective

# Alike in both directions, so that the order of a pair must not matter.
SYMMETRIC = (
    {"name": "infonce"},
    {"name": "reco"},
    {"name": "sigmoid"},
    {"name": "orthogonality"},
    {"name": "vse"},
    {"name": "vse", "hardest": False},
    {"name": "ifm"},
    {"name": "quest"},
)


def with_sounds(batch: Features) -> Features:
    """The same with sounds, which have the texts' features."""
    return Features({**batch.modalities, "audio": batch["text"]}, batch.positive_mask)


@pytest.mark.parametrize("settings", SYMMETRIC, ids=lambda settings: "-".join(map(str, settings.values())))
def test_a_pair_turned_round_has_the_same_loss(settings: dict[str, object]) -> None:
    batch = random_batch()
    assert batch.positive_mask is not None
    assert not torch.equal(batch.positive_mask, batch.positive_mask.T)
    losses = [
        build(parse_objective({**settings, "pairs": [pair]}), batch)(batch).total
        for pair in (["image", "text"], ["text", "image"])
    ]
    torch.testing.assert_close(losses[1], losses[0], rtol=0, atol=1e-12)
    unmasked = build(parse_objective(dict(settings)), batch)(random_batch(masked=False)).total
    assert abs(float(unmasked.detach() - losses[0].detach())) > 1e-6


@pytest.mark.parametrize("settings", SYMMETRIC, ids=lambda settings: "-".join(map(str, settings.values())))
def test_texts_say_nothing_of_images_and_sounds(settings: dict[str, object]) -> None:
    batch = with_sounds(random_batch())
    objective = build(parse_objective({**settings, "pairs": [["image", "audio"]]}), batch)
    unmasked = with_sounds(random_batch(masked=False))
    assert torch.equal(objective(batch).total, objective(unmasked).total)


def test_texts_belong_to_sounds_as_to_images() -> None:
    batch = with_sounds(random_batch())
    assert batch.of_pair("audio", "text").positive_mask is batch.positive_mask
    turned = batch.of_pair("text", "audio").positive_mask
    assert turned is not None
    assert batch.positive_mask is not None
    assert torch.equal(turned, batch.positive_mask.T)

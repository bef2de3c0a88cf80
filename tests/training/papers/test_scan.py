from typing import Any

import pytest
import torch

from tests.training.objectives.cases import DIM, random_batch
from tests.training.objectives.local_reference import without
from training.common.errors import RecipeError
from training.models.config import PairAttentionConfig
from training.models.features import Features, ModalityFeatures
from training.models.pair_attention import pair_similarities
from training.objectives.base import ObjectiveContext, parse_objective
from training.objectives.local import LocalEntries
from training.papers.scan import SCAN

pytestmark = pytest.mark.usefixtures("one_thread")

ATTENTION = {queries: PairAttentionConfig(queries=queries) for queries in ("words", "regions")}


def plain_batch() -> Features:
    """Three images of four regions and texts of three words, all plain numbers."""

    def entries(count: int, start: int) -> ModalityFeatures:
        values = ((torch.arange(3 * count * 5, dtype=torch.float64) * 7 + start) % 13 - 6) / 4
        local = values.view(3, count, 5)
        return ModalityFeatures(local.mean(dim=1), local=local)

    return Features({"image": entries(4, 0), "text": entries(3, 5)})


def slow_hinge(scores: list[list[float]], mask: list[list[bool]], margin: float, *, hardest: bool) -> float:
    """What pairs that don't match miss to the margin, both ways, pair by pair."""
    total = 0.0
    for i in range(len(scores)):
        forth = [margin - scores[i][i] + scores[i][j] for j in range(len(scores)) if not mask[i][j]]
        back = [margin - scores[i][i] + scores[j][i] for j in range(len(scores)) if not mask[j][i]]
        for costs in (forth, back):
            kept = [max(0.0, cost) for cost in costs]
            total += max(kept, default=0.0) if hardest else sum(kept)
    return total


# Worked out by the slow references above and of test_pair_attention.
@pytest.mark.parametrize(("queries", "golden"), [("words", 0.414514853555), ("regions", 0.520417093215)])
def test_golden_values(queries: str, golden: float) -> None:
    objective = SCAN(pair_attention=ATTENTION[queries])
    assert float(objective(plain_batch())) == pytest.approx(golden, abs=1e-9)


@pytest.mark.parametrize("queries", sorted(ATTENTION))
@pytest.mark.parametrize("hardest", [True, False])
def test_equals_the_slow_reference(queries: str, hardest: bool) -> None:
    batch, attention = random_batch(), ATTENTION[queries]
    assert batch.positive_mask is not None
    images, texts = LocalEntries.of(batch["image"]), LocalEntries.of(batch["text"])
    scores = pair_similarities(images.values, images.mask, texts.values, texts.mask, attention)
    expected = slow_hinge(scores.tolist(), batch.positive_mask.tolist(), 0.3, hardest=hardest)
    assert expected > 0.1
    objective = SCAN(pair_attention=attention, margin=0.3, hardest=hardest)
    assert float(objective(batch)) == pytest.approx(expected, abs=1e-10)


def test_what_is_missing_is_named() -> None:
    objective = SCAN(pair_attention=ATTENTION["words"])
    assert objective.requires == {"local", "one_vector"}
    assert objective.needs.keys() == {"model.share_local_head", "model.pair_attention"}
    with pytest.raises(RecipeError, match=r"give model\.pair_attention, such as \{queries: words\}"):
        parse_objective("scan").build(ObjectiveContext(dim=DIM, embedding_dim=DIM))
    for source in ("image", "text"):
        with pytest.raises(RecipeError, match=r"set model\.local_features to true"):
            objective(without(plain_batch(), source, "local"))


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"margin": 0}, "margin\n  Input should be greater than 0"),
        ({"pairs": [["text", "image"]]}, r"images with words of texts: leave objective\.pairs out"),
        ({"pairs": [["image", "audio"]]}, r"images with words of texts: leave objective\.pairs out"),
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        parse_objective({"name": "scan", **wrong})

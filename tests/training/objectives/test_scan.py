from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.training.objectives.cases import DIM, build_case, random_batch
from training.common.errors import RecipeError
from training.models.config import PairAttentionConfig
from training.models.features import Features, ModalityFeatures, Source
from training.models.pair_attention import pair_similarities
from training.objectives.base import ObjectiveContext
from training.objectives.local_entries import LocalEntries
from training.objectives.registry import parse_objective
from training.objectives.scan import SCAN, SCANSettings

pytestmark = pytest.mark.usefixtures("one_thread")

# Worked out by the slow references below and of test_pair_attention.
GOLDEN = {"words": 0.414514853555, "regions": 0.520417093215}


def build(queries: str = "words", **settings: float) -> SCAN:
    attention = PairAttentionConfig.model_validate({"queries": queries})
    context = ObjectiveContext(dim=DIM, pair_attention=attention)
    return SCANSettings.model_validate(settings).build(context)


def plain_batch() -> Features:
    """Three images of four regions and texts of three words, all plain numbers."""

    def entries(count: int, start: int) -> ModalityFeatures:
        values = ((torch.arange(3 * count * 5, dtype=torch.float64) * 7 + start) % 13 - 6) / 4
        local = values.view(3, count, 5)
        return ModalityFeatures(local.mean(dim=1), local=local)

    return Features({"image": entries(4, 0), "text": entries(3, 5)})


def similarities(batch: Features, attention: PairAttentionConfig) -> Tensor:
    images, texts = LocalEntries.of(batch["image"]), LocalEntries.of(batch["text"])
    return pair_similarities(images.values, images.mask, texts.values, texts.mask, attention)


def slow_hinge(scores: list[list[float]], mask: list[list[bool]], margin: float, *, hardest: bool) -> float:
    """What pairs that do not match lack to the margin, both ways, pair by pair."""
    total = 0.0
    for i in range(len(scores)):
        forth = [margin - scores[i][i] + scores[i][j] for j in range(len(scores)) if not mask[i][j]]
        back = [margin - scores[i][i] + scores[j][i] for j in range(len(scores)) if not mask[j][i]]
        for costs in (forth, back):
            kept = [max(0.0, cost) for cost in costs]
            total += (max(kept) if hardest else sum(kept)) if kept else 0.0
    return total


@pytest.mark.parametrize("queries", sorted(GOLDEN))
def test_golden_values(queries: str) -> None:
    objective = build(queries)
    assert float(objective(plain_batch()).total) == pytest.approx(GOLDEN[queries], abs=1e-9)


@pytest.mark.parametrize("queries", ["words", "regions"])
@pytest.mark.parametrize("hardest", [True, False])
def test_equals_the_slow_reference(queries: str, hardest: bool) -> None:
    batch, objective = random_batch(), build(queries, margin=0.3, hardest=hardest)
    assert batch.positive_mask is not None
    scores = similarities(batch, objective.attention).tolist()
    expected = slow_hinge(scores, batch.positive_mask.tolist(), 0.3, hardest=hardest)
    assert expected > 0.1
    assert float(objective(batch).total) == pytest.approx(expected, abs=1e-10)


def test_global_embeddings_have_no_say() -> None:
    batch, objective = random_batch(), build()
    bare = {name: replace(batch[name], embedding=batch[name].embedding * 0) for name in batch.modalities}
    assert torch.equal(objective(replace(batch, modalities=bare)).total, objective(batch).total)


@pytest.mark.parametrize("name", ["scan-words", "scan-regions"])
def test_free_regions_and_words_find_each_other(name: str) -> None:
    torch.manual_seed(0)
    batch = random_batch(8, masked=False)
    objective = build_case(name, batch)
    leaves = []
    modalities = dict(batch.modalities)
    sources: tuple[Source, ...] = ("image", "text")
    for source in sources:
        local = batch[source].local
        assert local is not None
        leaves.append(local.clone().requires_grad_())
        modalities[source] = replace(batch[source], local=leaves[-1])
    found = replace(batch, modalities=modalities)
    optimizer = torch.optim.Adam(leaves, lr=0.05)
    for _ in range(150):
        optimizer.zero_grad()
        total = objective(found).total
        torch.autograd.backward(total)
        optimizer.step()
    assert float(total.detach()) == 0


def test_what_is_missing_is_said() -> None:
    assert build().requires == {"local", "shared_head", "pair_attention", "one_vector"}
    with pytest.raises(RecipeError, match=r"model\.pair_attention"):
        SCANSettings().build(ObjectiveContext(dim=DIM))
    with pytest.raises(RecipeError, match=r"model\.local_features"):
        build()(Features({name: ModalityFeatures(torch.ones(2, 4)) for name in ("image", "text")}))
    for wrong in ({"margin": 0}, {"pairs": [["text", "image"]]}, {"pairs": [["image", "audio"]]}):
        with pytest.raises(ValueError, match=r"margin|objective\.pairs"):
            parse_objective({"name": "scan", **wrong})

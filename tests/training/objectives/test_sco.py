from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.training.objectives.cases import DIM, LABELS, VOCABULARY, random_batch
from training.common.errors import RecipeError
from training.models.features import Features, ModalityFeatures
from training.objectives.base import ObjectiveContext
from training.objectives.caption_lstm import CaptionLSTMSettings
from training.objectives.labels import LabelsSettings
from training.objectives.registry import parse_objective
from training.objectives.sco import SCO, SCOSettings
from training.objectives.vse import VSESettings

pytestmark = pytest.mark.usefixtures("one_thread")

CONTEXT = ObjectiveContext(DIM, vocabulary=VOCABULARY, labels=LABELS)


def build(**settings: Any) -> SCO:
    torch.manual_seed(0)
    return SCOSettings.model_validate({"width": 8, **settings}).build(CONTEXT).double().eval()


@pytest.mark.parametrize(
    "settings", [{}, {"hardest": False, "margin": 0.3}, {"concept_weight": 0.5, "order_weight": 2.0}]
)
def test_is_the_sum_of_matching_concepts_and_order(settings: dict[str, Any]) -> None:
    """Beside VSE's loss, that of labels whose classifier hands its input on, and that of Caption-LSTM."""
    batch, objective = random_batch(), build(**settings)
    image = batch["image"]
    hinge = {key: value for key, value in settings.items() if key in ("hardest", "margin")}
    matching = VSESettings(**hinge).build(CONTEXT)(batch).total / len(image.embedding)
    labels = LabelsSettings().build(replace(CONTEXT, dim=LABELS)).double()
    with torch.no_grad():
        labels.classifier.weight.copy_(torch.eye(LABELS))
        labels.classifier.bias.zero_()
    assert image.concepts is not None
    concepts = labels(replace(batch, modalities={"image": ModalityFeatures(image.concepts)})).total
    writer = CaptionLSTMSettings(width=8).build(CONTEXT).double().eval()
    writer.load_state_dict(objective.writer.state_dict())
    alone = ModalityFeatures(image.embedding, local=image.embedding[:, None])
    order = writer(replace(batch, modalities={"image": alone})).total
    expected = (
        matching + settings.get("concept_weight", 1) * concepts + settings.get("order_weight", 1) * order
    )
    output = objective(batch)
    torch.testing.assert_close(output.total, expected, rtol=0, atol=1e-12)
    for name, value in (("matching", matching), ("concepts", concepts), ("order", order)):
        torch.testing.assert_close(output.terms[name], value.detach(), rtol=0, atol=1e-12)


def test_regions_have_no_say() -> None:
    batch, objective = random_batch(), build()
    bare = {name: replace(batch[name], local=None, local_mask=None) for name in batch.modalities}
    assert torch.equal(objective(replace(batch, modalities=bare)).total, objective(batch).total)


def test_what_is_missing_is_said() -> None:
    batch, objective = random_batch(), build()
    assert objective.requires == {"concepts", "labels", "captions", "one_vector"}
    with pytest.raises(RecipeError, match=r"data\.captions"):
        SCOSettings().build(ObjectiveContext(DIM))
    with pytest.raises(RecipeError, match=r"model\.concepts"):
        objective(replace(batch, labels=None))
    plain: Features = replace(
        batch, modalities={**batch.modalities, "image": ModalityFeatures(batch["image"].embedding)}
    )
    with pytest.raises(RecipeError, match=r"model\.concepts"):
        objective(plain)
    with pytest.raises(ValueError, match=r"objective\.pairs"):
        parse_objective({"name": "sco", "pairs": [["text", "image"]]})

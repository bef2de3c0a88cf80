import math
import re
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.training.objectives.reference import U, V, mask_of, random_embeddings
from training.losses import (
    EmbeddingLoss,
    IFMLoss,
    InfoNCELoss,
    OrthogonalityLoss,
    QuestLoss,
    ReCoLoss,
    SigmoidLoss,
    VSELoss,
)
from training.models.features import Features, ModalityFeatures
from training.objectives.base import ObjectiveContext
from training.objectives.registry import parse_objective

PAGE = Path(__file__).parents[2] / "docs" / "objectives.md"


@pytest.mark.parametrize(
    ("loss", "settings"),
    [
        (InfoNCELoss(0.1, image_weight=0.75), {"name": "infonce", "temperature": 0.1, "image_weight": 0.75}),
        (SigmoidLoss(0.2, -5), {"name": "sigmoid", "temperature": 0.2, "bias": -5}),
        (ReCoLoss(negative_weight=0.3), {"name": "reco", "negative_weight": 0.3}),
        (ReCoLoss(reduction="balanced"), {"name": "reco", "reduction": "balanced"}),
        (OrthogonalityLoss(0.4), {"name": "orthogonality", "negative_weight": 0.4}),
        (VSELoss(0.1, hardest=False), {"name": "vse", "margin": 0.1, "hardest": False}),
        (IFMLoss(0.05), {"name": "ifm", "epsilon": 0.05}),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("masked", [False, True])
def test_a_loss_is_its_objective(loss: EmbeddingLoss, settings: dict[str, object], masked: bool) -> None:
    image, text = random_embeddings(5)
    mask = mask_of(5, (0, 2), (2, 0)) if masked else None
    objective = parse_objective(settings).build(ObjectiveContext(dim=5))
    expected = objective(Features({"image": ModalityFeatures(image), "text": ModalityFeatures(text)}, mask))
    torch.testing.assert_close(loss(image, text, mask), expected.total)


def test_the_golden_values_of_infonce_reco_and_ifm() -> None:
    assert float(InfoNCELoss(0.1, learnable_temperature=False)(U, V)) == pytest.approx(
        0.196225662160, abs=1e-9
    )
    assert float(ReCoLoss()(U, V)) == pytest.approx(0.794804919588, abs=1e-11)
    # The learned temperature is a number of float32.
    assert float(IFMLoss()(U, V).detach()) == pytest.approx(0.511374714384, abs=1e-8)


def test_reco_of_blades_is_that_of_quotients_of_determinants() -> None:
    """Exchanged vectors turn a blade round: partners have cosine -1, and some others one above 0."""
    first, second = torch.stack([U, V], dim=1), torch.stack([V, U], dim=1)

    def gram(a: Tensor, b: Tensor) -> float:
        products = a @ b.T
        return float(products[0, 0] * products[1, 1] - products[0, 1] * products[1, 0])

    expected = 0.0
    for row, a in enumerate(first):
        for column, b in enumerate(second):
            cosine = gram(a, b) / math.sqrt(gram(a, a) * gram(b, b))
            expected += (1 - cosine) ** 2 if row == column else 0.6 * max(0, cosine) ** 2
    assert expected > 12
    assert float(ReCoLoss()(first, second)) == pytest.approx(expected, abs=1e-11)


def test_quest_takes_two_outputs_of_each_modality() -> None:
    shared, unique = random_embeddings(4), random_embeddings(4, seed=1)
    loss = QuestLoss()
    leaves = [tensor.requires_grad_() for tensor in (*shared, *unique)]
    loss((shared[0], unique[0]), (shared[1], unique[1])).backward()
    assert all(leaf.grad is not None and bool(leaf.grad.isfinite().all()) for leaf in leaves)


def test_a_wrong_setting_is_refused() -> None:
    with pytest.raises(ValueError, match="greater than or equal to 0"):
        ReCoLoss(negative_weight=-1)


def test_the_documented_loop_learns() -> None:
    section = PAGE.read_text(encoding="utf-8").split("## In a training loop of your own")[1].split("\n## ")[0]
    code = "\n".join(re.findall(r"^    (.*)$", section, re.M))
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(32, 6, generator=generator)
    batches = [(hidden @ torch.randn(6, 8, generator=generator), hidden)] * 60
    losses: list[Tensor] = []
    names = {
        "image_encoder": torch.nn.Linear(8, 4),
        "text_encoder": torch.nn.Linear(6, 4),
        "batches": batches,
        "report": losses.append,
    }
    exec(code, names)
    assert float(losses[-1]) < 0.5 * float(losses[0])


def test_batches_of_unequal_size_are_refused() -> None:
    for image, text in ((5, 8), (8, 5)):
        with pytest.raises(ValueError, match=r"must have one shape: row i of both is a pair\.$"):
            ReCoLoss(0.6)(torch.rand(image, 12), torch.rand(text, 12))


LOSSES = (InfoNCELoss(), SigmoidLoss(), ReCoLoss(), OrthogonalityLoss(), VSELoss(), IFMLoss())


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
def test_empty_batches_and_masks_of_another_type_or_size_are_refused(loss: EmbeddingLoss) -> None:
    image, text = random_embeddings(4)
    with pytest.raises(ValueError, match=r"^The batch is empty: "):
        loss(image[:0], text[:0])
    with pytest.raises(ValueError, match=r"^positive_mask is torch\.float32, and has to be torch\.bool: "):
        loss(image, text, torch.eye(4))
    for mask in (mask_of(3), mask_of(4)[0], mask_of(4)[:2]):
        with pytest.raises(
            ValueError, match=r"^positive_mask is \(.*\), and a batch of 4 pairs takes \(4, 4\): "
        ):
            loss(image, text, mask)


def test_quest_refuses_the_same() -> None:
    one, other = random_embeddings(4)
    with pytest.raises(ValueError, match="The batch is empty"):
        QuestLoss()((one[:0], one[:0]), (other[:0], other[:0]))
    with pytest.raises(ValueError, match="positive_mask is"):
        QuestLoss()((one, one), (other, other), mask_of(3))

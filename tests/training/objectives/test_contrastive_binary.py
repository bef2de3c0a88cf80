import math
from collections import Counter

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from tests.training.objectives.reference import CONTEXT, U, V, features, mask_of, random_embeddings
from training.models.features import Features, ModalityFeatures
from training.objectives.contrastive_binary import (
    ContrastiveBinary,
    ContrastiveBinarySettings,
    draw_each,
)

# Worked out by the slow reference below.
GOLDEN = 0.756023682468


def build(hidden: int = 3, dim: int = 4) -> ContrastiveBinary:
    """The objective in evaluation, with weights that are plain numbers."""
    context = CONTEXT if dim == CONTEXT.dim else type(CONTEXT)(dim=dim)
    objective = ContrastiveBinarySettings(hidden=hidden).build(context).double().eval()
    with torch.no_grad():
        for number, parameter in enumerate(objective.parameters(), start=1):
            values = torch.arange(parameter.numel(), dtype=torch.float64)
            parameter.copy_(((values * 7 + number) % 5 - 2).view_as(parameter) / 4)
    return objective


def slow_logit(objective: ContrastiveBinary, first: Tensor, second: Tensor) -> float:
    """The classifier's answer on one pair, number by number."""
    (weight, bias), (last, shift) = (
        (layer.weight.tolist(), layer.bias.tolist())
        for layer in objective.classifier
        if isinstance(layer, torch.nn.Linear)
    )
    pair = [*first.tolist(), *second.tolist()]
    hidden = [
        max(0.0, sum(w * x for w, x in zip(row, pair, strict=True)) + b)
        for row, b in zip(weight, bias, strict=True)
    ]
    return float(sum(w * h for w, h in zip(last[0], hidden, strict=True)) + shift[0])


def slow_loss(objective: ContrastiveBinary, batch: Features, fakes: list[list[int]]) -> float:
    """Half the cross-entropy of all real pairs and half the mean over these fakes of each image."""
    images, texts = batch["image"].embedding, batch["text"].embedding

    def cost(image: int, text: int, *, real: bool) -> float:
        probability = 1 / (1 + math.exp(-slow_logit(objective, images[image], texts[text])))
        return -math.log(probability if real else 1 - probability)

    size = len(images)
    real = sum(cost(i, i, real=True) for i in range(size))
    fake = sum(sum(cost(i, j, real=False) for j in own) / len(own) for i, own in enumerate(fakes) if own)
    return (real + fake) / (2 * size)


def unmatched(mask: Tensor) -> list[list[int]]:
    return [[j for j, matches in enumerate(row) if not matches] for row in mask.tolist()]


def test_golden_value() -> None:
    objective, batch = build(), features(U, V)
    assert slow_loss(objective, batch, [[1, 2], [0, 2], [0, 1]]) == pytest.approx(GOLDEN, abs=1e-11)
    assert float(objective(batch).total.detach()) == pytest.approx(GOLDEN, abs=1e-11)


@pytest.mark.parametrize("pairs", [(), ((0, 2),), ((0, 2), (2, 0), (1, 3))])
def test_evaluation_is_the_mean_over_all_fakes(pairs: tuple[tuple[int, int], ...]) -> None:
    image, text = random_embeddings(5)
    objective, mask = build(dim=5), mask_of(5, *pairs)
    batch = features(image, text, mask)
    expected = slow_loss(objective, batch, unmatched(mask))
    assert float(objective(batch).total.detach()) == pytest.approx(expected, abs=1e-12)


def test_training_draws_one_fake_for_each_image() -> None:
    image, text = random_embeddings(5)
    objective, mask = build(dim=5).train(), mask_of(5, (0, 2), (1, 3))
    batch = features(image, text, mask)
    for seed in range(3):
        torch.manual_seed(seed)
        fakes = [[column] for column in draw_each(~mask).tolist()]
        torch.manual_seed(seed)
        expected = slow_loss(objective, batch, fakes)
        assert float(objective(batch).total.detach()) == pytest.approx(expected, abs=1e-12)


@pytest.mark.slow
def test_mean_over_many_draws_is_the_loss_of_evaluation() -> None:
    image, text = random_embeddings(5)
    objective, batch = build(dim=5), features(image, text, mask_of(5, (0, 2)))
    whole = float(objective(batch).total.detach())
    objective.train()
    drawn = torch.stack([objective(batch).total.detach() for _ in range(3000)])
    assert float(drawn.std()) > 0
    assert abs(float(drawn.mean()) - whole) < 4 * float(drawn.std()) / math.sqrt(3000)


def test_all_that_may_be_drawn_are_equally_likely_and_nothing_else_is_drawn() -> None:
    allowed = torch.tensor([[False, True, True, True], [True, False, False, True], [False] * 4])
    found = Counter(tuple(draw_each(allowed).tolist()) for _ in range(3000))
    assert {row[0] for row in found} == {1, 2, 3}
    assert {row[1] for row in found} == {0, 3}
    assert {row[2] for row in found} == {0}
    assert all(abs(count - 500) < 100 for count in found.values())


def test_gradient_is_right_where_fakes_are_drawn() -> None:
    image, text = random_embeddings(4)
    objective = build(dim=5).train()

    def loss(a: Tensor, b: Tensor) -> Tensor:
        torch.manual_seed(3)
        total: Tensor = objective(features(a, b, mask_of(4, (0, 2)))).total
        return total

    assert torch.autograd.gradcheck(loss, (image.requires_grad_(), text.requires_grad_()))


def test_images_without_a_fake_cost_their_real_pair_alone() -> None:
    image, text = random_embeddings(3)
    everything = torch.ones((3, 3), dtype=torch.bool)
    for objective in (build(dim=5), build(dim=5).train()):
        output = objective(features(image, text, everything))
        assert float(output.terms["fake"]) == 0
        assert float(output.total.detach()) == pytest.approx(float(output.terms["real"]) / 2)


def test_terms_are_the_losses_of_real_pairs_and_of_fakes() -> None:
    output = build()(features(U, V))
    assert not any(term.requires_grad for term in output.terms.values())
    assert float(output.total.detach()) == pytest.approx(
        float(output.terms["real"] + output.terms["fake"]) / 2
    )


@pytest.mark.slow
def test_encoders_learn_to_be_told_apart() -> None:
    """Free embeddings whose real pairs a classifier comes to know."""
    torch.manual_seed(0)
    image, text = (batch.requires_grad_() for batch in random_embeddings(12, 8))
    objective = ContrastiveBinarySettings(hidden=32).build(type(CONTEXT)(dim=8)).double()
    optimizer = torch.optim.Adam([image, text, *objective.parameters()], lr=0.02)
    for _ in range(300):
        optimizer.zero_grad()
        torch.autograd.backward(objective(features(image, text)).total)
        optimizer.step()
    logits = torch.stack([objective.logits(item.expand_as(text), text) for item in image]).detach()
    assert torch.equal(logits > 0, torch.eye(12, dtype=torch.bool))


def test_blades_are_refused_and_the_width_is_checked() -> None:
    assert build().requires == {"one_vector"}
    with pytest.raises(ValidationError):
        ContrastiveBinarySettings(hidden=0)


def test_several_pairs_of_modalities_share_the_classifier() -> None:
    settings = ContrastiveBinarySettings(hidden=3, pairs=(("image", "text"), ("image", "audio")))
    objective = settings.build(CONTEXT).double().eval()
    batch = Features(
        {"image": ModalityFeatures(U), "text": ModalityFeatures(V), "audio": ModalityFeatures(U)}
    )
    one = ContrastiveBinary(ContrastiveBinarySettings(hidden=3), CONTEXT).double().eval()
    one.load_state_dict(objective.state_dict())
    expected = (one(features(U, V)).total + one(features(U, U)).total) / 2
    torch.testing.assert_close(objective(batch).total, expected, rtol=0, atol=1e-12)

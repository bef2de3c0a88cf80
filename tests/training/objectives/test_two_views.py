import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from tests.training.objectives.cases import DIM, random_batch
from training.common.errors import RecipeError
from training.models.features import Features, ModalityFeatures, Source
from training.objectives.base import ObjectiveContext
from training.objectives.pixpro import PixPro, PixProSettings, centres

pytestmark = pytest.mark.usefixtures("one_thread")

# Worked out by the slow reference below.
GOLDEN = -0.224282415588
WHOLE = torch.eye(2, 3, dtype=torch.float64)
LEFT = torch.tensor([[0.5, 0, 0], [0, 1, 0]], dtype=torch.float64)
CORNER = torch.tensor([[0.5, 0, 0], [0, 0.5, 0]], dtype=torch.float64)
OPPOSITE = torch.tensor([[0.5, 0, 0.5], [0, 0.5, 0.5]], dtype=torch.float64)
MIRRORED = torch.tensor([[-1.0, 0, 1], [0, 1, 0]], dtype=torch.float64)


def build(dim: int = DIM, **settings: float) -> PixPro:
    """The objective with weights that are plain numbers."""
    objective = PixProSettings.model_validate(settings).build(ObjectiveContext(dim)).double()
    with torch.no_grad():
        for number, parameter in enumerate(objective.parameters(), start=1):
            values = torch.arange(parameter.numel(), dtype=torch.float64)
            parameter.copy_(((values * 7 + number) % 5 - 2).view_as(parameter) / 4)
    return objective


def plain_batch(first: Tensor = LEFT, second: Tensor = CORNER, dim: int = 2) -> Features:
    """Two images of 2 x 2 regions that are plain numbers, with these frames of both views."""

    def regions(start: int) -> ModalityFeatures:
        values = (torch.arange(2 * 4 * dim, dtype=torch.float64) * 5 + start) % 13 - 6
        local = values.view(2, 4, dim) / 4
        return ModalityFeatures(local.mean(dim=1), local=local)

    sources: tuple[Source, ...] = ("image", "view", "momentum", "momentum_view")
    found = {source: regions(start) for start, source in enumerate(sources)}
    frames = {"image": first, "view": second}
    return Features(
        {
            source: replace(features, frame=frames[source].repeat(2, 1, 1)) if source in frames else features
            for source, features in found.items()
        }
    )


def unit(values: list[float]) -> list[float]:
    length = math.sqrt(sum(x * x for x in values))
    return [x / length for x in values]


def dot(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


@torch.no_grad()
def slow_loss(objective: PixPro, batch: Features, side: int = 2) -> float:
    """Minus the mean cosine of all pairs of regions that are near, image by image, pair by pair."""
    settings = objective.settings

    def places(source: Source, image: int) -> tuple[list[list[float]], float]:
        frame = batch[source].frame
        assert frame is not None
        (a, b, c), (d, e, f) = frame[image].tolist()
        steps = [(n + 0.5) / side for n in range(side)]
        points = [[a * x + b * y + c, d * x + e * y + f] for y in steps for x in steps]
        return points, math.sqrt(2 * abs(a * e - b * d)) / side

    def propagated(regions: list[list[float]]) -> list[list[float]]:
        values = [unit(objective.value(WHOLE.new_tensor(region)).tolist()) for region in regions]
        mixed = []
        for one in regions:
            shares = [max(0.0, dot(unit(one), unit(other))) ** settings.sharpness for other in regions]
            mixed.append([dot(shares, column) for column in map(list, zip(*values, strict=True))])
        return mixed

    total, count = 0.0, len(batch["image"].embedding)
    ways: tuple[tuple[Source, Source, Source], ...] = (
        ("image", "view", "momentum_view"),
        ("view", "image", "momentum"),
    )
    for online, other, target in ways:
        for image in range(count):
            local, wanted = batch[online].local, batch[target].local
            assert local is not None
            assert wanted is not None
            predicted = propagated(local[image].tolist())
            here, diagonal = places(online, image)
            there, other_diagonal = places(other, image)
            reach = settings.reach * max(diagonal, other_diagonal)
            cosines = [
                dot(unit(predicted[i]), unit(wanted[image, j].tolist()))
                for i, a in enumerate(here)
                for j, b in enumerate(there)
                if math.dist(a, b) < reach
            ]
            total += sum(cosines) / max(1, len(cosines)) / count
    return -total


def test_golden_value() -> None:
    objective, batch = build(2), plain_batch()
    assert slow_loss(objective, batch) == pytest.approx(GOLDEN, abs=1e-11)
    assert float(objective(batch).total.detach()) == pytest.approx(GOLDEN, abs=1e-11)


@pytest.mark.parametrize("settings", [{}, {"reach": 0.4}, {"reach": 3}, {"sharpness": 1}])
def test_equals_the_slow_reference(settings: dict[str, Any]) -> None:
    batch, objective = random_batch(), build(**settings)
    expected = slow_loss(objective, batch)
    assert float(objective(batch).total.detach()) == pytest.approx(expected, abs=1e-11)


def test_regions_lie_row_by_row_where_the_frame_says() -> None:
    assert centres(WHOLE.unsqueeze(0), 2)[0].tolist() == [
        [0.25, 0.25],
        [0.75, 0.25],
        [0.25, 0.75],
        [0.75, 0.75],
    ]
    assert centres(MIRRORED.unsqueeze(0), 2)[0, :2].tolist() == [[0.75, 0.25], [0.25, 0.25]]
    assert centres(OPPOSITE.unsqueeze(0), 2)[0, 0].tolist() == [0.625, 0.625]


def test_only_what_shows_the_same_place_is_near() -> None:
    objective = build(2, reach=0.5)

    def near(first: Tensor, second: Tensor) -> list[list[int]]:
        batch = plain_batch(first, second)
        found: list[list[int]] = objective.near(batch["image"], batch["view"])[0].int().tolist()
        return found

    identity = [[int(i == j) for j in range(4)] for i in range(4)]
    assert near(WHOLE, WHOLE) == identity
    assert near(WHOLE, MIRRORED) == [identity[place] for place in (1, 0, 3, 2)]
    # The corner's four regions are a quarter of the whole's first.
    assert near(WHOLE, CORNER) == [[1, 1, 1, 1], [0] * 4, [0] * 4, [0] * 4]
    assert near(CORNER, OPPOSITE) == [[0] * 4] * 4


def test_views_that_do_not_meet_cost_nothing() -> None:
    objective = build(2, reach=0.5)
    output = objective(plain_batch(CORNER, OPPOSITE))
    assert float(output.total.detach()) == 0
    assert float(output.terms["overlap"]) == 0
    assert float(objective(plain_batch(WHOLE, WHOLE)).terms["overlap"]) == 1


def test_targets_get_no_gradient() -> None:
    batch = plain_batch()
    leaves = {source: batch[source].local for source in batch.modalities}
    grown = {
        source: replace(batch[source], local=local.clone().requires_grad_())
        for source, local in leaves.items()
        if local is not None
    }
    torch.autograd.backward(build(2)(Features(grown)).total)
    learned = {source for source, f in grown.items() if f.local is not None and f.local.grad is not None}
    assert learned == {"image", "view"}


def test_regions_become_what_the_copy_says_of_the_same_place() -> None:
    torch.manual_seed(0)
    batch = random_batch()
    objective = build()
    first, second = (batch[source].local for source in ("image", "view"))
    assert first is not None
    assert second is not None
    first, second = first.clone().requires_grad_(), second.clone().requires_grad_()
    optimizer = torch.optim.Adam([first, second, *objective.parameters()], lr=0.02)
    for _ in range(200):
        optimizer.zero_grad()
        views: dict[Source, ModalityFeatures] = {
            "image": replace(batch["image"], local=first),
            "view": replace(batch["view"], local=second),
        }
        output = objective(replace(batch, modalities={**batch.modalities, **views}))
        torch.autograd.backward(output.total)
        optimizer.step()
    assert -float(output.total.detach()) == pytest.approx(2 * float(output.terms["similarity"]))
    assert not output.terms["similarity"].requires_grad
    # An image whose views do not meet adds nothing to the mean.
    assert output.terms["similarity"] > 0.6 * output.terms["overlap"]


def test_what_is_missing_is_said() -> None:
    batch, objective = random_batch(), build()
    assert objective.requires == {"local", "shared_head", "views", "momentum"}
    assert objective.momentum == 0.99
    sources = dict(batch.modalities)
    with pytest.raises(RecipeError, match="copy of the encoder"):
        objective(Features({"image": sources["image"], "view": sources["view"]}))
    with pytest.raises(RecipeError, match="two views"):
        objective(Features({"image": sources["image"]}))
    sources["view"] = replace(sources["view"], frame=None)
    with pytest.raises(RecipeError, match="where views overlap"):
        objective(Features(sources))
    objective.check_regions(49)
    with pytest.raises(RecipeError, match="48 regions"):
        objective.check_regions(48)
    for wrong in ({"momentum": 1.1}, {"reach": 0}, {"sharpness": 0.5}, {"pairs": [["image", "text"]]}):
        with pytest.raises(ValidationError):
            PixProSettings.model_validate(wrong)

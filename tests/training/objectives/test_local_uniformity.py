import math
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from tests.training.objectives.local_reference import (
    DIM,
    local_batch,
    random_entries,
    slow_uniformity,
    with_padding_of,
)
from tests.training.objectives.reference import mask_of, slow_info_nce
from training.objectives.base import ObjectiveContext
from training.objectives.local_cosines import self_cosines
from training.objectives.local_entries import LocalEntries
from training.objectives.local_uniformity import (
    LocalUniformitySettings,
    UniformityKind,
    local_uniformity,
)
from training.objectives.similarity import cosine_matrix

KINDS: tuple[UniformityKind, ...] = ("gauss", "xent")
CONTEXT = ObjectiveContext(DIM)
Z = torch.tensor([[[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1]]], dtype=torch.float64)
ALL = torch.ones((1, 4), dtype=torch.bool)


@pytest.mark.parametrize(
    ("kind", "temperature", "expected"),
    [
        ("gauss", 0.2, 3.832581932248),
        ("xent", 0.2, 5.210610635464),
        ("gauss", 0.5, 1.216566159932),
        ("xent", 0.5, 2.589203353137),
    ],
)
def test_golden_values(kind: UniformityKind, temperature: float, expected: float) -> None:
    found = local_uniformity(self_cosines(Z), ALL, kind=kind, temperature=temperature)
    assert float(found) == pytest.approx(expected, abs=1e-11)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("counts", [(4, 4, 4), (4, 1, 2)])
def test_equals_the_slow_reference(kind: UniformityKind, counts: tuple[int, ...]) -> None:
    entries = random_entries(counts)
    found = local_uniformity(self_cosines(entries.values), entries.mask, kind=kind, temperature=0.3)
    assert float(found) == pytest.approx(slow_uniformity(entries, kind, 0.3), abs=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("temperature", [0.2, 0.5])
def test_collapsed_points_are_spread(kind: UniformityKind, temperature: float) -> None:
    generator = torch.Generator().manual_seed(0)
    start = torch.ones(1, 4, 3) + 0.01 * torch.randn(1, 4, 3, generator=generator)
    vectors = start.double().requires_grad_()
    optimizer = torch.optim.Adam([vectors], lr=0.1)
    for _ in range(300):
        optimizer.zero_grad()
        loss = local_uniformity(self_cosines(vectors), ALL, kind=kind, temperature=temperature)
        torch.autograd.backward(loss)
        optimizer.step()
    cosines = self_cosines(vectors.detach())[0][~torch.eye(4, dtype=torch.bool)]
    assert float(cosines.mean()) == pytest.approx(-1 / 3, abs=0.01)
    if temperature == 0.5:
        torch.testing.assert_close(cosines, torch.full_like(cosines, -1 / 3), rtol=0, atol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_gradient_is_right(kind: UniformityKind) -> None:
    entries = random_entries((3, 2))

    def loss(values: torch.Tensor) -> torch.Tensor:
        return local_uniformity(self_cosines(values), entries.mask, kind=kind)

    # Padding is not at zero here, where a cosine has no derivative.
    values = torch.where(entries.mask.unsqueeze(2), entries.values, 1.0)
    assert torch.autograd.gradcheck(loss, (values.requires_grad_(),))


@pytest.mark.parametrize("kind", KINDS)
def test_sample_with_one_entry_adds_a_constant_without_gradient(kind: UniformityKind) -> None:
    entries = random_entries((1, 1))
    values = entries.values.clone().requires_grad_()
    loss = local_uniformity(self_cosines(values), entries.mask, kind=kind, temperature=0.2)
    assert float(loss.detach()) == pytest.approx(5.0, abs=1e-12)
    torch.autograd.backward(loss)
    assert values.grad is not None
    assert values.grad.abs().max() < 1e-12


@pytest.mark.parametrize("kind", KINDS)
def test_sample_without_entries_adds_nothing(kind: UniformityKind) -> None:
    entries = random_entries((3, 3))
    mask = entries.mask.clone()
    mask[1] = False
    values = entries.values.clone().requires_grad_()
    loss = local_uniformity(self_cosines(values), mask, kind=kind)
    alone = local_uniformity(self_cosines(values[:1]), mask[:1], kind=kind)
    assert float(loss.detach()) == pytest.approx(float(alone.detach()) / 2, abs=1e-14)
    torch.autograd.backward(loss)
    assert values.grad is not None
    assert torch.isfinite(values.grad).all()
    assert not values.grad[1].any()


@pytest.mark.parametrize(("kind", "weight"), [("gauss", 0.25), ("xent", 0.5)])
def test_loss_is_the_global_one_plus_both_uniformities(kind: UniformityKind, weight: float) -> None:
    batch = local_batch()
    output = LocalUniformitySettings(kind=kind).build(CONTEXT)(batch)
    cosines = cosine_matrix(batch["image"].embedding, batch["text"].embedding)
    whole = slow_info_nce(cosines, 0.1, 0.75, mask_of(len(cosines)))
    image, text = (slow_uniformity(LocalEntries.of(batch[name]), kind, 0.2) for name in ("image", "text"))
    assert float(output.terms["global"]) == pytest.approx(whole, abs=1e-12)
    assert float(output.terms["first_uniformity"]) == pytest.approx(image, abs=1e-12)
    assert float(output.terms["second_uniformity"]) == pytest.approx(text, abs=1e-12)
    assert float(output.total) == pytest.approx(whole + weight * (image + text), abs=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("garbage", [1e6, math.inf, math.nan])
def test_padding_has_no_influence_whatever_it_holds(kind: UniformityKind, garbage: float) -> None:
    batch, objective = local_batch(), LocalUniformitySettings(kind=kind).build(CONTEXT)
    dirty = with_padding_of(batch, garbage)
    local = dirty["text"].local
    assert local is not None
    local.requires_grad_()
    total = objective(dirty).total
    assert torch.equal(total, objective(batch).total)
    torch.autograd.backward(total)
    assert local.grad is not None
    assert torch.isfinite(local.grad).all()


def test_weight_follows_the_kind_unless_it_is_set() -> None:
    assert LocalUniformitySettings().uniformity_weight == 0.25
    assert LocalUniformitySettings(kind="gauss").uniformity_weight == 0.25
    assert LocalUniformitySettings(kind="xent").uniformity_weight == 0.5
    assert LocalUniformitySettings(kind="xent", uniformity_weight=0.1).uniformity_weight == 0.1
    settings = LocalUniformitySettings(kind="xent", uniformity_temperature=0.3)
    assert LocalUniformitySettings.model_validate(settings.model_dump()) == settings


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "normal"},
        {"kind": ["gauss"]},
        {"uniformity_weight": -0.25},
        {"uniformity_temperature": 0.0},
        {"temperature": 0.0},
        {"eta": 0.5},
    ],
)
def test_settings_refuse_what_has_no_meaning(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        LocalUniformitySettings.model_validate(wrong)

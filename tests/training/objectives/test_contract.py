"""What every objective keeps: right gradients, no say for order or padding, and the same in two processes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.training.objectives import two_processes
from tests.training.objectives.cases import (
    VOCABULARY,
    blades_of,
    build_case,
    captions,
    cases,
    cases_of_processes,
    follows_finite_differences,
    learnable,
    random_batch,
    rows_of,
    slow_but_first,
    with_extras,
    with_features,
)
from training.models.features import Features
from training.objectives.base import Objective

NAMES = sorted(cases())
# Their steps take longest.
_LONGER = frozenset(
    {"caption_lstm", "caption_transformer", "lovt", "ltd-constrained", "reclaim", "scan-regions", "sco"}
)

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def halves(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, dict[str, Any]]]:
    """The outcome of every case in each of two processes."""
    folder: Path = tmp_path_factory.mktemp("processes")
    return two_processes.run(folder)


@pytest.mark.parametrize("fast", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", [name for name in NAMES if follows_finite_differences(name)])
def test_gradient_is_right(name: str, fast: bool) -> None:
    """Compare it with finite differences: in random directions, or number by number."""
    batch = random_batch(4, blades=blades_of(name))
    objective = build_case(name, batch)
    values = {key: value.requires_grad_() for key, value in learnable(batch).items()}

    def loss(*changed: Tensor) -> Tensor:
        total: Tensor = objective(with_features(batch, dict(zip(values, changed, strict=True))))
        return total

    assert torch.autograd.gradcheck(loss, tuple(values.values()), fast_mode=fast)


@pytest.mark.parametrize("name", NAMES)
def test_order_of_the_batch_does_not_matter(name: str) -> None:
    batch = random_batch(blades=blades_of(name))
    order = torch.tensor([3, 5, 0, 1, 4, 2])
    mask = batch.positive_mask
    assert mask is not None
    shuffled = replace(rows_of(batch, order), positive_mask=mask[order][:, order])
    objective = build_case(name, batch)
    torch.testing.assert_close(objective(shuffled), objective(batch), rtol=0, atol=1e-11)


@pytest.mark.parametrize("name", NAMES)
def test_padding_has_no_influence(name: str) -> None:
    batch = random_batch(blades=blades_of(name))
    objective = build_case(name, batch)
    clean, clean_gradients = _loss_and_gradients(objective, batch)
    dirty, gradients = _loss_and_gradients(objective, _with_garbage_in_padding(batch))
    assert torch.equal(dirty, clean)
    for key, gradient in gradients.items():
        torch.testing.assert_close(gradient, clean_gradients[key], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", sorted(cases_of_processes()))
def test_two_processes_have_the_loss_and_gradient_of_one(
    name: str, halves: list[dict[str, dict[str, Any]]]
) -> None:
    alone = two_processes.outcome(name)
    parts = [half[name] for half in halves]
    count = len(parts)
    _assert_equal(sum(part["total"] for part in parts) / count, alone["total"])
    for key, gradient in alone["features"].items():
        averaged = torch.cat([part["features"][key] for part in parts]) / count
        _assert_equal(averaged, gradient)
    for key, gradient in alone["parameters"].items():
        averaged = sum(part["parameters"][key] for part in parts) / count
        _assert_equal(averaged, gradient)
    for key, buffer in alone["buffers"].items():
        for part in parts:
            _assert_equal(part["buffers"][key], buffer)


@pytest.mark.parametrize("name", slow_but_first(NAMES, longer=_LONGER))
def test_toy_problem_is_fitted(name: str) -> None:
    torch.manual_seed(1)
    batch = random_batch(masked=False, blades=blades_of(name))
    objective = build_case(name, batch).train()
    values = {key: value.clone().requires_grad_() for key, value in learnable(batch).items()}
    optimizer = torch.optim.Adam([*values.values(), *objective.parameters()], lr=0.05)
    losses = []
    for _ in range(150):
        optimizer.zero_grad()
        total = objective.compute(with_features(batch, values)).total
        torch.autograd.backward(total)
        optimizer.step()
        objective.after_step()
        losses.append(float(total.detach()))
    assert all(torch.isfinite(torch.tensor(losses)))
    assert losses[-1] < losses[0] - 0.3 * abs(losses[0])


@pytest.mark.parametrize("name", NAMES)
def test_autocast_and_half_precision_leave_the_loss_in_full(name: str) -> None:
    batch = random_batch(blades=blades_of(name))
    objective = build_case(name, batch).float()
    full, half = (
        with_features(batch, {key: value.to(kind) for key, value in learnable(batch).items()})
        for kind in (torch.float32, torch.bfloat16)
    )
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside, of_half = objective.compute(full), objective.compute(half)
    assert inside.total.dtype == of_half.total.dtype == torch.float32
    assert torch.equal(inside.total, objective.compute(full).total)
    torch.testing.assert_close(of_half.total, inside.total, rtol=0.1, atol=0.1)
    assert not any(term.requires_grad for term in inside.terms.values())


@pytest.mark.parametrize("name", NAMES)
def test_zero_vectors_give_a_finite_loss_and_gradient(name: str) -> None:
    batch = random_batch(blades=blades_of(name))
    zeros = with_features(batch, {key: torch.zeros_like(value) for key, value in learnable(batch).items()})
    total, gradients = _loss_and_gradients(build_case(name, batch), zeros)
    assert total.isfinite()
    assert gradients
    assert all(gradient.isfinite().all() for gradient in gradients.values())


@pytest.mark.parametrize("name", NAMES)
def test_a_number_that_is_none_is_not_hidden(name: str) -> None:
    batch = random_batch(blades=blades_of(name))
    objective = build_case(name, batch)
    _, used = _loss_and_gradients(objective, batch)
    for key in used:
        value = learnable(batch)[key].clone()
        value[0, 0] = torch.nan
        assert not objective.compute(with_features(batch, {key: value})).total.isfinite(), key


def _assert_equal(ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-11)


def _loss_and_gradients(objective: Objective, batch: Features) -> tuple[Tensor, dict[str, Tensor]]:
    values = {key: value.clone().requires_grad_() for key, value in learnable(batch).items()}
    total = objective.compute(with_features(batch, values)).total
    torch.autograd.backward(total)
    found = {key: value.grad for key, value in values.items() if value.grad is not None}
    return total.detach(), found


def _with_garbage_in_padding(batch: Features) -> Features:
    text = batch["text"]
    assert text.local is not None
    assert text.local_mask is not None
    padding = ~text.local_mask.unsqueeze(-1)
    garbage = torch.where(padding, torch.full_like(text.local, 1e3), text.local)
    written = captions(batch)
    words = written.input_ids.where(written.attention_mask.bool(), VOCABULARY - 1)
    dirty = replace(written, input_ids=words)
    return with_extras(with_features(batch, {"text.local": garbage}), captions=dirty)

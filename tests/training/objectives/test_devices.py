"""Terms are where the features are, since a report stacks them, and no step waits for that device."""

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.training.objectives.cases import (
    attention_of,
    blades_of,
    build,
    captions,
    cases_of_processes,
    extra,
    random_batch,
)
from tests.training.waiting import nothing_waits
from training.models.features import Features, ModalityFeatures
from training.objectives.base import LossOutput, parse_objective


def moved(batch: Features, move: Callable[[Tensor], Tensor]) -> Features:
    def of_modality(features: ModalityFeatures) -> ModalityFeatures:
        held = {field.name: getattr(features, field.name) for field in fields(features)}
        return replace(features, **{name: move(value) for name, value in held.items() if value is not None})

    written = captions(batch)
    words = replace(written, input_ids=move(written.input_ids), attention_mask=move(written.attention_mask))
    return replace(
        batch,
        modalities={source: of_modality(features) for source, features in batch.modalities.items()},
        positive_mask=None if batch.positive_mask is None else move(batch.positive_mask),
        items=None if batch.items is None else move(batch.items),
        extras={"captions": words} | {name: move(extra(batch, name)) for name in ("targets", "labels")},
    )


def with_fixed_temperatures(settings: Any) -> Any:
    """Settings whose temperatures, and those of a base, are not learned."""
    if not isinstance(settings, dict):
        return settings
    changes = {"learnable_temperature": False} if "learnable_temperature" in settings else {}
    return {key: with_fixed_temperatures(value) for key, value in settings.items()} | changes


def _pairs() -> Iterator[Any]:
    """Objectives as they are, and with fixed temperatures: one of these with the fast tests."""
    for name in sorted(cases_of_processes()):
        yield pytest.param(name, False, id=f"{name}-as it is")
        marks = () if name == "infonce" else pytest.mark.slow
        yield pytest.param(name, True, id=f"{name}-fixed temperature", marks=marks)


@pytest.mark.parametrize(("name", "fixed"), _pairs())
def test_steps_wait_for_nothing_and_terms_are_on_the_device(
    name: str, fixed: bool, device: torch.device
) -> None:
    settings = cases_of_processes()[name]
    if fixed:
        settings = parse_objective(with_fixed_temperatures(settings.model_dump(mode="json")))
    batch = random_batch(blades=blades_of(name))
    objective = build(settings, batch, attention_of(name)).train().to(device)

    def learned(value: Tensor) -> Tensor:
        return value.to(device).requires_grad_(value.is_floating_point())

    features = moved(batch, learned)
    weights = torch.zeros(1, device=device, requires_grad=True)
    optimizer = torch.optim.AdamW([weights, *objective.parameters()])
    with nothing_waits(device):
        # The second step has what the first one left in memories.
        for _ in range(2):
            optimizer.zero_grad()
            output = objective.compute(features)
            torch.stack(list(output.terms.values()))
            torch.autograd.backward(output.total)
            optimizer.step()
            objective.after_step()
    assert output.total.device == device
    assert {term: value.device for term, value in output.terms.items()} == dict.fromkeys(output.terms, device)


def test_terms_from_elsewhere_are_brought_to_the_total() -> None:
    total = torch.empty((), dtype=torch.float32, device="meta")
    terms = LossOutput(total, {"temperature": torch.tensor(0.1, dtype=torch.float64)}).terms
    assert terms["temperature"].device == total.device
    assert terms["temperature"].dtype == total.dtype

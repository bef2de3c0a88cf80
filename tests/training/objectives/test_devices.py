"""Terms are where the features are, since a report stacks them, which torch refuses across devices."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental import _config

from tests.training.objectives.cases import attention_of, blades_of, build, cases_of_processes, random_batch
from training.models.features import Features, ModalityFeatures
from training.objectives.base import LossOutput
from training.objectives.registry import parse_objective


def _no_autocast(*_: Any, **__: Any) -> nullcontext[None]:
    return nullcontext()


@pytest.fixture
def meta(monkeypatch: pytest.MonkeyPatch) -> Iterator[torch.device]:
    """A device without data, beside which a tensor of the CPU is out of place as beside those of a GPU."""
    # Autocast does not know it, and masks have no data to count.
    monkeypatch.setattr(torch, "autocast", _no_autocast)
    settings: Any = _config
    with settings.patch(meta_nonzero_assume_all_nonzero=True):
        yield torch.device("meta")


def moved(batch: Features, move: Callable[[Tensor], Tensor]) -> Features:
    def of_modality(features: ModalityFeatures) -> ModalityFeatures:
        held = {field.name: getattr(features, field.name) for field in fields(features)}
        return replace(features, **{name: move(value) for name, value in held.items() if value is not None})

    held = {name: getattr(batch, name) for name in ("positive_mask", "items", "targets", "labels")}
    captions = batch.captions
    assert captions is not None
    return replace(
        batch,
        modalities={source: of_modality(features) for source, features in batch.modalities.items()},
        captions=replace(
            captions, input_ids=move(captions.input_ids), attention_mask=move(captions.attention_mask)
        ),
        **{name: move(value) for name, value in held.items() if value is not None},
    )


def with_fixed_temperatures(settings: Any) -> Any:
    """Settings whose temperatures, and those of a base, are not learned."""
    if not isinstance(settings, dict):
        return settings
    changes = {"learnable_temperature": False} if "learnable_temperature" in settings else {}
    return {key: with_fixed_temperatures(value) for key, value in settings.items()} | changes


@pytest.mark.parametrize("fixed", [False, True], ids=["as it is", "fixed temperature"])
@pytest.mark.parametrize("name", sorted(cases_of_processes()))
def test_terms_are_on_the_device_of_the_features(name: str, fixed: bool, meta: torch.device) -> None:
    settings = cases_of_processes()[name]
    if fixed:
        settings = parse_objective(with_fixed_temperatures(settings.model_dump(mode="json")))
    batch = random_batch(blades=blades_of(name))
    objective = build(settings, batch, attention_of(name)).train().to(meta)
    output = objective(moved(batch, lambda value: value.to(meta)))
    assert output.total.device == meta
    assert {term: value.device for term, value in output.terms.items()} == dict.fromkeys(output.terms, meta)
    torch.stack(list(output.terms.values()))


def test_terms_from_elsewhere_are_brought_to_the_total() -> None:
    total = torch.empty((), dtype=torch.float32, device="meta")
    terms = LossOutput(total, {"temperature": torch.tensor(0.1, dtype=torch.float64)}).terms
    assert terms["temperature"].device == total.device
    assert terms["temperature"].dtype == total.dtype

"""No step of a run waits for its device, from the drawing of a batch to what follows the optimizer."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.objectives.cases import cases
from tests.training.steps import run_steps
from tests.training.trainer.test_every_objective import recipe_of
from training.models.sentence_encoder import SentenceEncoder
from training.recipes.load import parse_recipe
from training.recipes.schema import Recipe
from training.trainer import assembly
from training.trainer.batches import Targets
from training.trainer.run import train

# Of every sort of what an objective keeps and needs; `test_devices` sees the losses of all.
_FAST = frozenset({"infonce", "byol", "caption_lstm", "ltd-dual"})
VARIANTS: dict[str, dict[str, Any]] = {
    "in chunks": {"chunk_size": 2},
    "averaged weights": {"ema_decay": 0.9},
    "gradients of any length": {"optimizer": {"max_grad_norm": None}},
}


def recipe(kind: str, sentence_encoder: Path, **settings: Any) -> Recipe:
    """The tiny recipe of an objective whose batches are encoded at once."""
    tree = json.loads(recipe_of(kind, sentence_encoder, "fp32").model_dump_json())
    tree["train"]["chunk_size"] = None
    for name, value in settings.items():
        if isinstance(value, dict):
            tree[name] |= value
        else:
            tree["train"][name] = value
    return parse_recipe(tree, kind)


@pytest.fixture(autouse=True)
def made_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put zeros in place of targets: a text that is new is embedded in the thread that prepares batches."""

    def zeros(sentences: SentenceEncoder) -> Targets:
        return lambda texts: torch.zeros(len(texts), sentences.dim)

    monkeypatch.setattr(assembly, "_targets", zeros)


@pytest.mark.parametrize(
    "kind", [name if name in _FAST else pytest.param(name, marks=pytest.mark.slow) for name in cases()]
)
def test_no_step_of_an_objective_waits(
    kind: str,
    device: torch.device,
    scenes: Path,
    sentence_encoder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = recipe(kind, sentence_encoder)
    run_steps(
        lambda name: train(settings, scenes, tmp_path / "run", device=name, show_progress=False),
        device,
        monkeypatch,
    )


@pytest.mark.parametrize("variant", sorted(VARIANTS))
def test_no_step_waits_in_whatever_way_it_is_done(
    variant: str,
    device: torch.device,
    scenes: Path,
    sentence_encoder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = recipe("infonce", sentence_encoder, **VARIANTS[variant])
    run_steps(
        lambda name: train(settings, scenes, tmp_path / "run", device=name, show_progress=False),
        device,
        monkeypatch,
    )

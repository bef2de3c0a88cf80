"""Objectives with a memory, a multiplier or targets: a resumed run equals one that never stopped."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BertConfig, BertModel

from tests.training.models.test_sentence_encoder import write_tokenizer
from tests.training.trainer.scenes import tiny_recipe
from training.objectives.registry import parse_objective
from training.recipes.schema import Recipe
from training.trainer.checkpoint import load_checkpoint
from training.trainer.errors import TrainingInterruptedError
from training.trainer.loop import TrainingLoop
from training.trainer.run import train

STOPPED_AFTER = 4


@pytest.fixture(scope="module")
def sentence_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sentences")
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    BertModel(BertConfig(vocab_size=300, intermediate_size=32, **sizes)).save_pretrained(folder)
    write_tokenizer(folder)
    return folder


def recipe_of(sentence_encoder: Path) -> Recipe:
    """RECLAIM on LTD on InfoNCE, selected by its loss, which has to be there for other images as well."""
    recipe = tiny_recipe(select_by="loss")
    objective = {"name": "reclaim", "neighbours": 3, "base": {"name": "ltd", "hidden": 16}}
    data = recipe.data.model_copy(update={"target_encoder": str(sentence_encoder)})
    return recipe.model_copy(update={"objective": parse_objective(objective), "data": data})


def run(recipe: Recipe, data: Path, out: Path, *, resume: bool = False) -> None:
    train(recipe, data, out, resume=resume, device="cpu", show_progress=False)


def test_resumed_run_has_the_same_memory_multiplier_and_weights(
    scenes: Path, sentence_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = recipe_of(sentence_encoder)
    run(recipe, scenes, tmp_path / "straight")
    original: Callable[..., None] = TrainingLoop._step

    def step_and_signal(loop: TrainingLoop, batch: Any) -> None:
        if loop.position.step + 1 == STOPPED_AFTER:
            os.kill(os.getpid(), signal.SIGTERM)
        original(loop, batch)

    with monkeypatch.context() as patch:
        patch.setattr(TrainingLoop, "_step", step_and_signal)
        with pytest.raises(TrainingInterruptedError):
            run(recipe, scenes, tmp_path / "resumed")
    halfway = load_checkpoint(tmp_path / "resumed/checkpoints/last.pt").task
    run(recipe, scenes, tmp_path / "resumed", resume=True)
    ours, theirs = (
        load_checkpoint(tmp_path / name / "checkpoints/last.pt").task for name in ("resumed", "straight")
    )
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    kept = [name for name in theirs if name.endswith(("rows", "multiplier.value"))]
    assert len(kept) == 3
    assert all(not torch.equal(halfway[name], theirs[name]) for name in kept)

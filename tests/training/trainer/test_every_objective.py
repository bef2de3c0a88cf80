"""Every objective trains from a recipe to a bundle in either precision, and resumes bit-equal."""

import json
import math
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BertConfig, BertModel

from tests.training.models.test_sentence_encoder import write_tokenizer
from tests.training.objectives.cases import blades_of, cases
from tests.training.runs import assert_same, lines
from tests.training.trainer.scenes import tiny_recipe
from tests.training.trainer.test_run import run, stop_after
from training.models.bundle import read_bundle
from training.objectives.base import ObjectiveContext
from training.recipes.load import parse_recipe
from training.recipes.schema import Recipe
from training.trainer.checkpoint import load_checkpoint
from training.trainer.errors import TrainingInterruptedError

STEPS = 3
DIM = 9
# Forms that train and keep what another form does, and differ in a number or a sum only.
_ALIKE = frozenset(
    {
        "reco-balanced",
        "orthogonality-balanced",
        "ifm-vse",
        "vse-blades",
        "ifm-blades",
        "infonce-three-blades",
        "orthogonality-blades",
    }
)
KINDS = [name for name in cases() if name not in _ALIKE]


@pytest.fixture(scope="module")
def target_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A frozen sentence encoder, as small as can be."""
    folder = tmp_path_factory.mktemp("sentences")
    torch.manual_seed(0)
    sizes: dict[str, Any] = {
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 8,
    }
    BertModel(BertConfig(vocab_size=300, max_position_embeddings=40, **sizes)).save_pretrained(folder)
    write_tokenizer(folder)
    return folder


def recipe_of(kind: str, target_encoder: Path, precision: str = "fp32") -> Recipe:
    """A tiny recipe with what this objective needs, and no more."""
    objective = cases()[kind]
    built = objective.build(ObjectiveContext(DIM, instances=14, target_dim=8))
    tree: dict[str, Any] = json.loads(
        tiny_recipe(epochs=None, steps=STEPS, precision=precision).model_dump_json()
    )
    tree["objective"] = objective.model_dump(mode="json")
    tree["model"]["dim"] = DIM
    tree["model"]["blades"] = blades_of(kind)
    if "local" in built.requires:
        tree["model"]["local_features"] = True
        tree["preprocessing"]["text"]["sentences"] = True
        tree["data"]["text_unit"] = "report"
    if "branches" in built.requires:
        tree["model"]["branches"] = {"kind": "transformer", "layers": 1, "fork_after": 1}
    if "unshared_retrieval" in built.requires:
        tree["model"]["retrieval"] = "normal"
    if "unshared_retrieval" in built.requires:
        tree["model"]["retrieval"] = "normal"
    if "targets" in built.requires:
        tree["data"]["target_encoder"] = str(target_encoder)
    return parse_recipe(tree, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_resumed_run_is_bit_equal(
    kind: str, scenes: Path, target_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, straight, stopped = recipe_of(kind, target_encoder), tmp_path / "straight", tmp_path / "stopped"
    run(recipe, scenes, straight)
    with monkeypatch.context() as patch:
        stop_after(patch, 2, signal.SIGTERM)
        with pytest.raises(TrainingInterruptedError):
            run(recipe, scenes, stopped)
    torch.manual_seed(99)
    run(recipe, scenes, stopped, resume=True)
    ours, theirs = (load_checkpoint(folder / "checkpoints/last.pt") for folder in (stopped, straight))
    assert_same(vars(ours), vars(theirs))
    assert read_bundle(stopped / "bundle").digest == read_bundle(straight / "bundle").digest


@pytest.mark.parametrize("kind", KINDS)
def test_half_precision_gives_numbers(kind: str, scenes: Path, target_encoder: Path, tmp_path: Path) -> None:
    run(recipe_of(kind, target_encoder, "bf16"), scenes, tmp_path / "out")
    losses = [line["loss"] for line in lines(tmp_path / "out") if line["kind"] == "train"]
    assert len(losses) == STEPS
    assert all(math.isfinite(loss) for loss in losses)
    weights = load_checkpoint(tmp_path / "out/checkpoints/last.pt").task
    assert all(torch.isfinite(weight).all() for weight in weights.values() if weight.is_floating_point())

"""Every objective trains in either precision, and resumes bit-equal."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.objectives.cases import attention_of, blades_of, cases
from tests.training.runs import assert_same_checkpoints, lines
from tests.training.trainer.scenes import run, stop, tiny_recipe
from training.models.bundle import read_bundle
from training.objectives.base import ObjectiveContext
from training.recipes.schema import Recipe
from training.trainer.run_state.checkpoint import Checkpoint, load_checkpoint

# An epoch has three.
STEPS = 4
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
# Of every sort of what an objective keeps: nothing, a copy, a multiplier, banks. That the others
# train, `test_every_recipe` sees.
_FAST = frozenset({"infonce", "byol", "ltd-dual", "reclaim"})


def recipe_of(kind: str, sentence_encoder: Path, precision: str, **train: Any) -> Recipe:
    """A tiny recipe with what this objective needs, and no more; selected by its loss, so on other images."""
    objective = cases()[kind]
    attention = attention_of(kind)
    built = objective.build(
        ObjectiveContext(DIM, instances=14, target_dim=8, vocabulary=300, labels=3, pair_attention=attention)
    )
    model: dict[str, Any] = {"dim": DIM, "blades": blades_of(kind)}
    data: dict[str, Any] = {}
    if "text" not in objective.modalities:
        model["text"] = None
    if "data.captions" in built.needs:
        data["captions"] = {"vocabulary": "words"}
    if "model.share_local_head" in built.needs:
        model["share_local_head"] = True
    if "local" in built.requires:
        model["local_features"] = True
        data["text_unit"] = "report"
    if attention is not None:
        model["pair_attention"] = attention.model_dump()
    if "model.concepts" in built.needs:
        model["concepts"] = 3
    if "branches" in built.requires:
        model["branches"] = {"kind": "transformer", "layers": 1, "fork_after": 1}
    if "shared" not in built.retrievals:
        model["retrieval"] = next(iter(built.retrievals))
    if "data.target_encoder" in built.needs:
        data["target_encoder"] = str(sentence_encoder)
    return tiny_recipe(
        objective=objective.model_dump(mode="json"),
        model=model,
        data=data,
        preprocessing={"text": {"sentences": "local" in built.requires}},
        **{"steps": STEPS, "select_by": "loss", "precision": precision} | train,
    )


@pytest.mark.parametrize("precision", ["fp32", pytest.param("bf16", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "kind", [kind if kind in _FAST else pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS]
)
def test_resumed_run_is_bit_equal_and_finite(
    kind: str, precision: str, scenes: Path, sentence_encoder: Path, tmp_path: Path
) -> None:
    recipe = recipe_of(kind, sentence_encoder, precision)
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    run(recipe, scenes, straight)
    stop(recipe, scenes, stopped, 2)
    halfway = last(stopped)
    torch.manual_seed(99)
    run(recipe, scenes, stopped, resume=True)
    assert_same_checkpoints(stopped, straight)
    assert read_bundle(stopped / "bundle").digest == read_bundle(straight / "bundle").digest
    check_finite(straight)
    check_goes_on(halfway, last(straight), still="multiplier" if kind == "ltd-dual" else None)


def last(folder: Path) -> Checkpoint:
    return load_checkpoint(folder / "checkpoints/last.pt")


def check_finite(folder: Path) -> None:
    """All losses, weights and what the optimizer keeps are numbers."""
    checkpoint = last(folder)
    logged = lines(folder)
    assert [line["step"] for line in logged if line["kind"] == "train"] == list(range(1, STEPS + 1))
    assert all(torch.tensor(line["loss"]).isfinite() for line in logged)
    kept = [value for state in checkpoint.optimizer["state"].values() for value in state.values()]
    tensors = [*checkpoint.task.values(), *kept]
    assert all(tensor.isfinite().all() for tensor in tensors)


def check_goes_on(earlier: Checkpoint, later: Checkpoint, *, still: str | None) -> None:
    """What an objective keeps beside its weights changes from step to step, except for what stands still."""
    assert (earlier.position.step, later.position.step) == (2, STEPS)
    names = [
        name
        for name in later.task
        if name.endswith(("_bank.rows", "multiplier.value")) or name.startswith("momentum.")
    ]
    moved = {name for name in names if not torch.equal(earlier.task[name], later.task[name])}
    assert moved == {name for name in names if still is None or still not in name}

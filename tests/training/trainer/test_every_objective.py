"""Every objective trains on sample data and real photographs in either precision, and resumes bit-equal."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.objectives.cases import attention_of, blades_of, cases
from tests.training.runs import assert_same, lines
from tests.training.trainer.scenes import run, stop, tiny_recipe
from training.models.bundle import read_bundle
from training.objectives.base import ObjectiveContext
from training.recipes.schema import Recipe
from training.samples import write_sample_data
from training.trainer.run_state.checkpoint import Checkpoint, load_checkpoint

# An epoch has fewer.
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
# Of every sort of what an objective keeps: nothing, a copy, a multiplier, banks, a decoder. That the others
# train, `test_every_recipe` sees.
_FAST = frozenset({"infonce", "byol", "ltd-dual", "reclaim", "caption_lstm"})
REAL_DATA = os.environ.get("RECOQUEST_TEST_DATA")
IMAGES = 24
real = [pytest.mark.slow, pytest.mark.skipif(not REAL_DATA, reason="RECOQUEST_TEST_DATA is not set")]


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Generated scenes and radiographs, and where there are real photographs, the first of these."""
    out = tmp_path_factory.mktemp("sample") / "data"
    write_sample_data(out, images=IMAGES, size=32)
    if REAL_DATA:
        photographs = Path(REAL_DATA) / "flickr"
        records = map(json.loads, (photographs / "manifest.jsonl").read_text().splitlines()[:IMAGES])
        (out / "photographs").mkdir()
        (out / "photographs/images").symlink_to(photographs / "images")
        with (out / "photographs/manifest.jsonl").open("w") as manifest:
            for place, record in enumerate(records):
                record["split"] = "val" if place % 4 == 3 else "train"
                # They have no labels of their own, and some objectives learn nothing else.
                words = " ".join(record["texts"]).lower().split()
                record["labels"] = [label for label in ("boy", "dog", "girl", "man") if label in words]
                manifest.write(json.dumps(record) + "\n")
    return out


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
    if "targets" in built.requires:
        data["target_encoder"] = str(sentence_encoder)
    return tiny_recipe(
        objective=objective.model_dump(mode="json"),
        model=model,
        data=data,
        preprocessing={"text": {"sentences": "local" in built.requires}},
        **{"steps": STEPS, "select_by": "loss", "precision": precision} | train,
    )


@pytest.mark.parametrize(
    ("collection", "precision"),
    [
        ("scenes", "fp32"),
        pytest.param("radiographs", "bf16", marks=pytest.mark.slow),
        pytest.param("scenes", "bf16", marks=pytest.mark.slow),
        pytest.param("radiographs", "fp32", marks=pytest.mark.slow),
        pytest.param("photographs", "fp32", marks=real),
        pytest.param("photographs", "bf16", marks=real),
    ],
)
@pytest.mark.parametrize(
    "kind", [kind if kind in _FAST else pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS]
)
def test_resumed_run_is_bit_equal_and_finite(
    kind: str,
    collection: str,
    precision: str,
    sample: Path,
    sentence_encoder: Path,
    tmp_path: Path,
) -> None:
    recipe, data = recipe_of(kind, sentence_encoder, precision), sample / collection
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    run(recipe, data, straight)
    stop(recipe, data, stopped, 2)
    halfway = last(stopped)
    torch.manual_seed(99)
    run(recipe, data, stopped, resume=True)
    ours, theirs = last(stopped), last(straight)
    assert_same(vars(ours), vars(theirs))
    assert read_bundle(stopped / "bundle").digest == read_bundle(straight / "bundle").digest
    check_finite(straight, theirs)
    check_goes_on(halfway, theirs, still="multiplier" if kind == "ltd-dual" else None)


def last(folder: Path) -> Checkpoint:
    return load_checkpoint(folder / "checkpoints/last.pt")


def check_finite(folder: Path, checkpoint: Checkpoint) -> None:
    """All losses, weights and what the optimizer keeps are numbers."""
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

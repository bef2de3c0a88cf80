"""Whole runs: what they leave, how they stop, and that a resumed run equals one that never stopped."""

import logging
import shutil
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from numpy.typing import NDArray
from torch import Tensor, nn

from tests.training.runs import assert_same, assert_same_checkpoints, before_step, lines, measured_lines
from tests.training.trainer.scenes import SIZE, run, stop, stop_and_resume, tiny_recipe, weights, write_scenes
from training.common.errors import BundleError, DataError, RecipeError, RecoquestError
from training.common.manifest import read_manifest
from training.data import prepared_rows
from training.models.bundle import read_bundle
from training.models.encoder import Encoder, load_encoder
from training.models.features import Features
from training.models.image_input import Pixels
from training.objectives import ReCo
from training.objectives.base import Extras, LossOutput, Objective, ObjectiveData
from training.recipes.load import load_recipe
from training.recipes.schema import Recipe
from training.trainer.batch_loss import BatchLoss
from training.trainer.batches import Batch
from training.trainer.loop import Callback, TrainingLoop
from training.trainer.run import TrainResult, train
from training.trainer.run_state.checkpoint import load_checkpoint, save_checkpoint
from training.trainer.run_state.errors import TrainingError, TrainingInterruptedError
from training.trainer.setup import with_temperature

BATCHES_PER_EPOCH = 3


@pytest.fixture(scope="module")
def straight(scenes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of six steps, two epochs, that nobody stopped; tests do not change it."""
    out = tmp_path_factory.mktemp("straight") / "out"
    run(tiny_recipe(), scenes, out)
    return out


@pytest.fixture
def out(straight: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return shutil.copytree(straight, tmp_path / "out")


def test_what_a_run_leaves(straight: Path, tmp_path: Path) -> None:
    bundle = read_bundle(shutil.copytree(straight / "bundle", tmp_path / "bundle"))
    assert bundle.name == "tiny"
    validations = [line for line in lines(straight) if line["kind"] == "validation"]
    assert [line["step"] for line in validations] == [3, 6]
    best = max(validations, key=lambda line: float(line["rsum"]))
    assert bundle.metrics["rsum"] == best["rsum"]
    assert load_checkpoint(straight / "checkpoints/best.pt").position.step == best["step"]
    assert load_recipe(str(straight / "recipe.yaml")) == with_temperature(tiny_recipe(chunk_size=None))
    training = [line for line in lines(straight) if line["kind"] == "train"]
    assert [line["step"] for line in training] == [1, 2, 3, 4, 5, 6]
    assert {"loss", "temperature", "learning_rate", "samples_per_second"} <= training[0].keys()
    assert list((straight / "tensorboard").iterdir())
    assert load_encoder(bundle.folder, "cpu").embed_texts(["a red square"]).vectors.shape == (1, 8)
    assert TrainResult(tmp_path, {}).rejected == 0


_FAST = ((signal.SIGTERM, 1), (signal.SIGINT, BATCHES_PER_EPOCH))


@pytest.mark.parametrize(
    ("number", "step"),
    [
        pytest.param(number, step, marks=() if (number, step) in _FAST else pytest.mark.slow)
        for number in (signal.SIGTERM, signal.SIGINT)
        for step in (1, 2, BATCHES_PER_EPOCH, 4)
    ],
)
def test_resumed_run_is_bit_equal(
    scenes: Path, straight: Path, tmp_path: Path, step: int, number: signal.Signals
) -> None:
    recipe, out = tiny_recipe(), tmp_path / "out"
    with (
        before_step(TrainingLoop, step, lambda: signal.raise_signal(number)),
        pytest.raises(TrainingInterruptedError, match=f"after step {step} of 6.*--resume") as stopped,
    ):
        run(recipe, scenes, out)
    assert stopped.value.received == number
    assert load_checkpoint(out / "checkpoints/last.pt").position.step == step
    assert not (out / "bundle").exists()
    torch.manual_seed(99)
    run(recipe, scenes, out, resume=True)
    assert_same_checkpoints(out, straight)
    assert read_bundle(out / "bundle").digest == read_bundle(straight / "bundle").digest
    assert measured_lines(out) == measured_lines(straight)


@pytest.mark.parametrize(
    "changes",
    [
        # Seven batches: 14 images with two texts each, by four.
        {"data": {"epoch_of": "texts"}, "epochs": 1},
        # The first line of a run that went on behind step 5 is of one step.
        {"ema_decay": 0.9, "log_every_steps": 6},
    ],
    ids=str,
)
def test_other_runs_are_resumed_bit_equal(scenes: Path, tmp_path: Path, changes: dict[str, Any]) -> None:
    recipe, out, straight = tiny_recipe(**changes), tmp_path / "out", tmp_path / "straight"
    run(recipe, scenes, straight)
    stop_and_resume(recipe, scenes, out, 5)
    assert_same_checkpoints(out, straight)
    training = [[line for line in lines(folder) if line["kind"] == "train"] for folder in (straight, out)]
    if "ema_decay" in changes:
        assert [(line["step"], line["averaged_steps"]) for both in training for line in both] == [
            (6, 6),
            (6, 1),
        ]
    else:
        assert [line["step"] for line in training[0]] == list(range(1, 8))


def test_killed_run_goes_on_from_its_last_checkpoint(scenes: Path, straight: Path, tmp_path: Path) -> None:
    """Without a chance to save: steps after the last checkpoint are done and logged again, not doubled."""

    class Die(Callback):
        def after_step(self, loop: TrainingLoop[Any], loss: LossOutput) -> None:
            if loop.position.step == 5:
                raise MemoryError

    out = tmp_path / "out"
    with pytest.raises(MemoryError):
        run(tiny_recipe(), scenes, out, callbacks=[Die()])
    assert load_checkpoint(out / "checkpoints/last.pt").position.step == BATCHES_PER_EPOCH
    with (out / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "ki')
    run(tiny_recipe(), scenes, out, resume=True)
    assert_same_checkpoints(out, straight)
    assert measured_lines(out) == measured_lines(straight)


def test_a_finished_run_is_resumed_to_the_same_whatever_its_recipe_says_of_itself(
    scenes: Path, straight: Path, out: Path
) -> None:
    reworded = tiny_recipe().model_copy(update={"description": "Other words.", "source": "A book."})
    result = run(reworded, scenes, out, resume=True)
    assert read_bundle(result.bundle).digest == read_bundle(straight / "bundle").digest
    assert lines(out) == lines(straight)


def test_figures_of_a_bundle_belong_to_its_weights(scenes: Path, out: Path) -> None:
    """A run killed between its best and its last checkpoint may not find the same best again on a GPU."""
    best = out / "checkpoints/best.pt"
    save_checkpoint(best, replace(load_checkpoint(best), metrics={"rsum": 1.5}))
    result = run(tiny_recipe(), scenes, out, resume=True)
    assert result.metrics == read_bundle(result.bundle).metrics == {"rsum": 1.5}


def test_what_cannot_be_begun_or_resumed_is_refused(scenes: Path, straight: Path, tmp_path: Path) -> None:
    other = write_scenes(tmp_path / "other", train=15)
    for changes, data, folder, resume, said in (
        ({}, scenes, straight, False, r"is not empty.*--resume"),
        ({}, scenes, tmp_path / "new", True, "no run to resume"),
        ({"batch_size": 5}, scenes, straight, True, r"another train\.batch_size"),
        ({}, other, straight, True, "data or the encoder are not those"),
    ):
        with pytest.raises(TrainingError, match=said):
            run(tiny_recipe(**changes), data, folder, resume=resume)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:1000])


@pytest.mark.parametrize(
    ("name", "damage", "said"),
    [
        ("last.pt", _cut, "cannot be read"),
        ("best.pt", _cut, r"best\.pt.* start the run anew\.$"),
        (
            "best.pt",
            lambda path: save_checkpoint(path, replace(load_checkpoint(path), task={})),
            r"best\.pt.* anew",
        ),
        (
            "best.pt",
            lambda path: save_checkpoint(path, replace(load_checkpoint(path), data="other")),
            "best.pt.* anew",
        ),
    ],
)
def test_refuses_a_checkpoint_that_it_could_not_use_before_it_goes_on(
    scenes: Path, out: Path, name: str, damage: Callable[[Path], None], said: str
) -> None:
    before = read_bundle(out / "bundle").digest
    damage(out / "checkpoints" / name)
    with pytest.raises(TrainingError, match=said):
        run(tiny_recipe(), scenes, out, resume=True)
    assert read_bundle(out / "bundle").digest == before


@pytest.mark.parametrize(
    ("of", "step", "said"),
    [
        ("loss", 4, "loss of step 5 is not a finite number"),
        ("gradient", 2, r"gradient of step 3 is not a finite number.*optimizer\.lr"),
    ],
)
def test_what_is_no_number_stops_the_run_before_it_reaches_the_weights(
    scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of: str, step: int, said: str
) -> None:
    original: Callable[..., LossOutput] = BatchLoss.backward

    def poisoned(loss: BatchLoss, batch: Batch, number: int) -> LossOutput:
        output = original(loss, batch, number)
        if number != step:
            return output
        if of == "loss":
            return replace(output, total=output.total * float("nan"))
        next(p.grad for p in loss.module.parameters() if p.grad is not None).fill_(float("inf"))
        return output

    monkeypatch.setattr(BatchLoss, "backward", poisoned)
    with pytest.raises(TrainingError, match=said):
        run(tiny_recipe(checkpoint_minutes=0), scenes, tmp_path / "out")
    checkpoint = load_checkpoint(tmp_path / "out/checkpoints/last.pt")
    assert checkpoint.position.step == step
    floats = [value for value in checkpoint.task.values() if value.is_floating_point()]
    assert all(torch.isfinite(value).all() for value in floats)


def test_selects_by_validation_loss_and_by_a_seed(scenes: Path, straight: Path, tmp_path: Path) -> None:
    result = run(tiny_recipe(select_by="loss", epochs=3, seed=1), scenes, tmp_path / "out")
    validations = [line["loss"] for line in lines(tmp_path / "out") if line["kind"] == "validation"]
    assert len(validations) == 3
    assert result.metrics["loss"] == min(validations)
    ours, theirs = (lines(folder)[0]["loss"] for folder in (tmp_path / "out", straight))
    assert ours != theirs


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_steps_may_end_a_run_in_an_epoch_and_validation_has_its_precision(
    scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    measured: list[bool] = []
    embed = Encoder.embed_images

    def noted(encoder: Encoder, images: Pixels) -> NDArray[np.float32]:
        measured.append(encoder.in_bfloat16)
        return embed(encoder, images)

    monkeypatch.setattr(Encoder, "embed_images", noted)
    run(tiny_recipe(precision=precision, steps=4, evaluate_every_epochs=5), scenes, tmp_path / "out")
    assert set(measured) == {precision == "bf16"}
    assert [line["step"] for line in lines(tmp_path / "out") if line["kind"] == "validation"] == [4]


def test_without_a_validation_split_the_last_weights_are_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = write_scenes(tmp_path / "data", val=0)
    result = run(tiny_recipe(), data, tmp_path / "out")
    assert "no validation split" in caplog.text
    assert result.metrics == read_bundle(result.bundle).metrics == {}
    last = load_checkpoint(tmp_path / "out/checkpoints/last.pt")
    assert last.position.step == 2 * BATCHES_PER_EPOCH
    kept = weights(tmp_path / "out")
    assert_same(kept, {name: last.task[f"model.{name}"] for name in kept})


@pytest.mark.parametrize("cache", ["memory", "disk", "none"])
def test_images_from_memory_disk_and_files_train_the_same_model(
    scenes: Path, straight: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    recipe = tiny_recipe(data={"cache_images": cache != "none"})
    if cache == "disk":
        # A run that began with files goes on from the disk.
        stop(tiny_recipe(data={"cache_images": False}), scenes, tmp_path / "out", 3)
        monkeypatch.setattr(prepared_rows, "_FEW", 0)
    run(recipe, scenes, tmp_path / "out", resume=cache == "disk")
    assert (tmp_path / "cache").exists() == (cache == "disk")
    if cache == "disk":
        assert_same_checkpoints(tmp_path / "out", straight)
    assert read_bundle(tmp_path / "out/bundle").digest == read_bundle(straight / "bundle").digest
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("decode")]


def test_full_disk_is_a_plain_sentence(scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(RecoquestError, match=r"cannot be written.*No space left"):
        run(tiny_recipe(), scenes, tmp_path / "out")


@pytest.mark.parametrize(("warmup", "share"), [(6, None), (7, 86), (1000, 1)])
def test_a_warm_up_that_is_longer_than_the_run_is_said_before_it(
    scenes: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, warmup: int, share: int | None
) -> None:
    """Two epochs are six steps."""
    said: list[str] = []
    with (
        before_step(
            TrainingLoop, 1, lambda: said.extend(line for line in caplog.messages if "warm-up" in line)
        ),
        caplog.at_level(logging.WARNING),
    ):
        run(tiny_recipe(schedule={"warmup_steps": warmup}), scenes, tmp_path / "out")
    expected = (
        f"The warm-up of {warmup:,} steps is longer than the run of 6: the learning rate rises to {share} % "
        "of the recipe's and no further. Set schedule.warmup_steps to less."
    )
    assert said == [expected] * (share is not None)


class Steps(Callback):
    """Notes steps, optimizers, figures and the weights of the model; ends the run after some measurements."""

    def __init__(self, measurements: int | None = None) -> None:
        self.measurements = measurements
        self.seen: list[tuple[int, bool]] = []
        self.optimizers: list[torch.optim.Optimizer] = []
        self.states: list[dict[str, Tensor]] = []
        self.figures: list[float] = []

    def after_step(self, loop: TrainingLoop[Any], loss: LossOutput) -> None:
        self.seen.append((loop.position.step, bool(loss.total.isfinite())))
        self.optimizers.append(loop.optimizer)
        state = loop.task.module.state_dict()
        self.states.append({name: value.clone() for name, value in state.items()})

    def after_measurement(self, loop: TrainingLoop[Any], figures: Mapping[str, float]) -> bool:
        self.figures.append(figures["rsum"])
        return len(self.figures) == self.measurements


def test_callbacks_see_every_step_and_may_end_the_training(scenes: Path, tmp_path: Path) -> None:
    early = Steps(measurements=2)
    result = run(tiny_recipe(epochs=5), scenes, tmp_path / "out", callbacks=[early, Callback()])
    assert early.seen == [(step, True) for step in range(1, 2 * BATCHES_PER_EPOCH + 1)]
    assert result.metrics["rsum"] == max(early.figures)
    assert (result.bundle / "model.safetensors").is_file()


def test_the_bundle_is_the_average_of_the_steps(scenes: Path, tmp_path: Path) -> None:
    steps = Steps()
    run(tiny_recipe(steps=5, ema_decay=0.3), scenes, tmp_path / "out", callbacks=[steps])
    name = "image_head.1.weight"
    # The first step keeps a tenth of the first weights, which is what its average tells.
    first = steps.states[0]
    average = first[f"average.model.{name}"].double()
    assert not torch.equal(average, first[f"model.{name}"].double())
    for number, state in enumerate(steps.states[1:], 1):
        keep = min(0.3, (1 + number) / (10 + number))
        average = keep * average + (1 - keep) * state[f"model.{name}"].double()
    last, best = (load_checkpoint(tmp_path / f"out/checkpoints/{each}.pt").task for each in ("last", "best"))
    torch.testing.assert_close(last[f"average.model.{name}"].double(), average, rtol=1e-5, atol=1e-6)
    kept = weights(tmp_path / "out")
    assert all(torch.equal(value, best[f"average.model.{key}"]) for key, value in kept.items())
    assert not torch.equal(kept[name], best[f"model.{name}"])
    statistics = [key for key in kept if "running_mean" in key]
    assert statistics
    assert all(torch.equal(kept[key], best[f"model.{key}"]) for key in statistics)


class Hinge(nn.Module):
    """A loss of one's own, with a weight that is learned."""

    def __init__(self) -> None:
        super().__init__()
        self.margin = nn.Parameter(torch.tensor(0.2))

    def forward(self, image: Tensor, text: Tensor) -> Tensor:
        scores = image @ text.T
        return (self.margin - scores.diagonal() + scores).clamp(min=0).mean() + self.margin.square()


def test_an_objective_as_an_object_trains_as_its_recipe_does(scenes: Path, tmp_path: Path) -> None:
    run(tiny_recipe(steps=3, objective={"name": "reco", "negative_weight": 0.3}), scenes, tmp_path / "named")
    run(tiny_recipe(steps=3), scenes, tmp_path / "given", objective=ReCo(negative_weight=0.3))
    assert_same(weights(tmp_path / "given"), weights(tmp_path / "named"))


def test_a_module_of_ones_own_trains_and_resumes_bit_equal(scenes: Path, tmp_path: Path) -> None:
    recipe = tiny_recipe(steps=4)
    run(recipe, scenes, tmp_path / "whole", objective=Hinge())
    stop_and_resume(recipe, scenes, tmp_path / "stopped", 3, objective=Hinge())
    assert_same(weights(tmp_path / "stopped"), weights(tmp_path / "whole"))
    kept = yaml.safe_load((tmp_path / "whole/recipe.yaml").read_text())["objective"]
    assert kept == {"pairs": [["image", "text"]], "name": "given", "by": f"{__name__}.Hinge"}
    with pytest.raises(RecipeError, match=r"object of .*Hinge: pass it as objective="):
        run(str(tmp_path / "whole/recipe.yaml"), scenes, tmp_path / "again")


class OneArgument(nn.Module):
    def forward(self, both: Tensor) -> Tensor:
        return both.mean()


class Failing(nn.Module):
    def forward(self, image: Tensor, text: Tensor) -> Tensor:
        raise KeyError(len(image) + len(text))


class Own(Objective):
    """An objective whose answers are wrong, as somebody's first try may be."""

    def __init__(self, answer: Any = None, extras: Any = None) -> None:
        super().__init__()
        self.answer, self.extras = answer, extras

    def prepare(self, data: ObjectiveData) -> Extras:
        answer: Extras = self.extras
        return answer

    def compute(self, features: Features) -> LossOutput:
        answer: LossOutput = self.answer
        return answer


def _refuse(texts: Sequence[object]) -> Tensor:
    raise KeyError(12)


ZERO = torch.zeros(())


@pytest.mark.parametrize(
    ("objective", "sentence"),
    [
        (
            lambda: OneArgument(),
            r"^forward\(\) of OneArgument doesn't take the embeddings of images a",
        ),
        (lambda: Failing(), r"test_run\.py, line \d+, in forward: KeyError: \d+\.$"),
        (lambda: Own(extras={}), r"^prepare\(\) of Own returned dict: return Extras\.$"),
        (
            lambda: Own(extras=Extras(rows={"a": torch.zeros(3)})),
            r"rows 'a' of shape \(3,\): give a ten",
        ),
        (lambda: Own(extras=Extras(texts={"a": _refuse})), r"in _refuse: KeyError: 12\.$"),
        (lambda: Own(ZERO, Extras()), r"^compute\(\) of Own returned Tensor: return a LossOutput\.$"),
        (lambda: Own(LossOutput(ZERO, {}), Extras()), r"^The loss of Own has no gradient: compute it from"),
    ],
)
def test_a_mistake_in_an_objective_of_ones_own_is_named(
    scenes: Path, tmp_path: Path, objective: Callable[[], nn.Module], sentence: str
) -> None:
    with pytest.raises(RecipeError, match=sentence):
        run(tiny_recipe(steps=1), scenes, tmp_path / "out", objective=objective())


@pytest.mark.parametrize("way", ["recipe", "object"])
def test_another_optimizer_trains(scenes: Path, tmp_path: Path, way: str) -> None:
    options, settings = {}, {}
    if way == "recipe":
        settings["optimizer"] = {"name": "SGD", "options": {"momentum": 0.9}}
    else:
        options["optimizer"] = partial(torch.optim.SGD, momentum=0.9)
    steps, recipe = Steps(), tiny_recipe(steps=3, **settings)
    run(recipe, scenes, tmp_path / "out", callbacks=[steps], **options)
    assert isinstance(steps.optimizers[0], torch.optim.SGD)
    groups = steps.optimizers[0].param_groups
    assert {group["momentum"] for group in groups} == {0.9}
    written = yaml.safe_load((tmp_path / "out/recipe.yaml").read_text())["optimizer"]["name"]
    assert written == ("SGD" if way == "recipe" else "given: SGD")
    if way == "object":
        with pytest.raises(RecipeError, match="trained with an object of SGD: pass it as optimizer=, or set"):
            run(str(tmp_path / "out/recipe.yaml"), scenes, tmp_path / "again")
    assert {group["base_lr"] for group in groups} == {recipe.optimizer.lr, recipe.optimizer.tower_lr}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"callbacks": Steps()}, "callbacks= is a list of objects"),
        ({"callbacks": [Steps]}, "callbacks= is a list of objects"),
        ({"optimizer": "SGD"}, r"not str: give torch\.optim\.SGD, or functools\.partial"),
    ],
)
def test_objects_of_another_kind_are_refused(
    scenes: Path, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(RecipeError, match=message):
        run(tiny_recipe(), scenes, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [
        ({"name": "sgd"}, r"optimizer\.name is sgd: set it to adam, adamw or another class"),
        ({"name": "LBFGS"}, r"optimizer\.name is LBFGS"),
        ({"name": "SGD", "options": {"speed": 1}}, r"torch\.optim\.SGD has no such argument"),
        ({"name": "SGD", "options": {"momentum": -1}}, r"refuses them: Invalid momentum"),
    ],
)
def test_an_optimizer_that_cannot_be_made_is_refused_before_any_work(
    scenes: Path, tmp_path: Path, optimizer: dict[str, Any], message: str
) -> None:
    with pytest.raises(RecipeError, match=message):
        run(tiny_recipe(optimizer=optimizer), scenes, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def _still(start: Path) -> Recipe:
    """A recipe of another model and vocabulary that starts from a bundle and hardly moves."""
    optimizer = {"lr": 1e-12, "tower_lr": None, "weight_decay": 0.0}
    return tiny_recipe(start_from=str(start), steps=1, optimizer=optimizer, model={"dim": 24})


def test_a_run_begins_with_the_weights_tokenizer_and_settings_of_a_bundle(
    straight: Path, tmp_path: Path
) -> None:
    start = straight / "bundle"
    second = run(_still(start), write_scenes(tmp_path / "data", repeated=True), tmp_path / "out").bundle
    assert read_bundle(second).config == read_bundle(start).config
    assert (second / "tokenizer.json").read_bytes() == (start / "tokenizer.json").read_bytes()
    # The statistics of batch norm follow the data, whatever the learning rate.
    before, now = (
        {
            name: value
            for name, value in weights(folder).items()
            if "running" not in name and "num_" not in name
        }
        for folder in (straight, tmp_path / "out")
    )
    assert before
    torch.testing.assert_close(now, before, rtol=0, atol=1e-9)


def test_a_stopped_run_remembers_where_it_began(scenes: Path, straight: Path, tmp_path: Path) -> None:
    recipe = tiny_recipe(start_from=str(straight / "bundle"))
    expected = run(recipe, scenes, tmp_path / "straight").bundle
    resumed = stop_and_resume(recipe, scenes, tmp_path / "out", 4).bundle
    assert read_bundle(resumed).digest == read_bundle(expected).digest
    assert load_recipe(str(tmp_path / "out/recipe.yaml")).train.start_from == str(straight / "bundle")


def test_a_start_that_no_epoch_improves_is_what_is_kept(tmp_path: Path) -> None:
    data = write_scenes(tmp_path / "data", repeated=True)
    first = run(tiny_recipe(epochs=10, select_by="loss"), data, tmp_path / "first")
    wrecking = {"lr": 1.0, "tower_lr": None}
    recipe = tiny_recipe(start_from=str(first.bundle), select_by="loss", optimizer=wrecking)
    second = run(recipe, data, tmp_path / "second")
    start, *later = [line["loss"] for line in lines(tmp_path / "second") if line["kind"] == "validation"]
    assert len(later) == 2
    assert min(later) > start == second.metrics["loss"]
    assert read_bundle(second.bundle).digest == read_bundle(first.bundle).digest


def test_a_start_that_is_no_bundle_is_refused(scenes: Path, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="There is no bundle at"):
        run(tiny_recipe(start_from=str(tmp_path / "none")), scenes, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_without_a_compiler_the_run_says_what_to_install(
    scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RecipeError, match="install g"):
        run(tiny_recipe(compile=True), scenes, tmp_path / "out")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler: apt-get install g++")
def test_compiled_towers_learn_the_same_and_resume(scenes: Path, tmp_path: Path) -> None:
    """Compiled dropout draws other numbers, so losses are compared without."""
    text = {"options": {"width": 8, "layers": 1, "heads": 2, "dropout": 0}}
    losses = []
    for name, compiled in (("plain", False), ("compiled", True)):
        run(tiny_recipe(compile=compiled, steps=3, model={"text": text}), scenes, tmp_path / name)
        losses.append([line["loss"] for line in lines(tmp_path / name) if line["kind"] == "train"])
    assert losses[1] == pytest.approx(losses[0], rel=1e-2)
    assert losses[1][0] == pytest.approx(losses[0][0], rel=1e-5)
    recipe = tiny_recipe(compile=True)
    straight = run(recipe, scenes, tmp_path / "straight").bundle
    resumed = stop_and_resume(recipe, scenes, tmp_path / "stopped", 3).bundle
    assert read_bundle(resumed).digest == read_bundle(straight).digest


def test_records_in_memory_train_and_resume_and_a_refused_run_is_repeated(tmp_path: Path) -> None:
    colors = [(200, 30, 30), (30, 200, 30), (30, 30, 200)]
    records: list[dict[str, Any]] = [
        {
            "image": np.full((SIZE, SIZE, 3), colors[number % 3], np.uint8),
            "texts": f"color {number % 3}, image {number}",
            "split": "val" if number >= 12 else "train",
        }
        for number in range(18)
    ]
    out = tmp_path / "out"
    with pytest.raises(DataError, match=r"Only 12 images have a text, fewer than a batch of 64"):
        train(tiny_recipe(batch_size=64), records, out, device="cpu", show_progress=False)
    recipe = tiny_recipe(epochs=2)
    first = train(recipe, records, out, device="cpu", show_progress=False)
    assert first.metrics["rsum"] > 0
    assert len(read_manifest(out / "data").records) == 18
    again = train(recipe, records, out, resume=True, device="cpu", show_progress=False)
    assert again.metrics == first.metrics

"""Runs of a module: trial before the first step, best checkpoint, reports, and no waiting for a device."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from tests.training.classification.samples import tiny_recipe as tiny_image_recipe
from tests.training.classification.samples import write_squares
from tests.training.models.tiny import BERT_SIZE
from tests.training.papers.samples import (
    tiny_language_recipe,
    tiny_question_recipe,
    tiny_text_recipe,
    write_sentences,
    write_sst,
    write_vqa,
)
from tests.training.runs import assert_same_runs, lines
from tests.training.steps import run_steps
from training.classification.run import classify_images
from training.common.errors import RecipeError
from training.common.rejections import Rejections
from training.papers.glue import TextRecipe, classify_texts
from training.papers.items import ItemLoader
from training.papers.language_models import train_language_model
from training.papers.vqa import answer_questions
from training.recipes.load import parse_as
from training.trainer import module_task
from training.trainer.loop import TrainingLoop
from training.trainer.module_task import ModuleTask, check_step
from training.trainer.modules import TrainedModule
from training.trainer.opening import RunOptions, open_run
from training.trainer.run_state.errors import TrainingError
from training.trainer.run_state.processes import Processes

Run = Callable[[Path, RunOptions], object]
WRITERS: dict[str, Callable[[Path], Path]] = {
    "images": write_squares,
    "texts": write_sst,
    "questions": write_vqa,
    "sentences": write_sentences,
}
RUNS: dict[str, Run] = {
    "images": lambda data, to: classify_images(tiny_image_recipe(train={"epochs": 1}), data, to),
    "texts": lambda data, to: classify_texts(tiny_text_recipe(reclaim=True, epochs=1), data, to),
    "questions": lambda data, to: answer_questions(tiny_question_recipe(reclaim=True), data, to),
    "sentences": lambda data, to: train_language_model(
        tiny_language_recipe(reclaim=True, posterior="implicit"), data, to
    ),
}


class Wide(TrainedModule):
    """Makes a million numbers of each row."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 1_000_000)
        self.rows: list[int] = []

    def forward(self, numbers: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        self.rows.append(len(numbers))
        return self.layer(numbers).square().mean(), {}


def options(out: Path) -> RunOptions:
    return RunOptions(out, device="cpu", show_progress=False)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name == "images" else pytest.mark.slow) for name in RUNS],
)
def test_it_leaves_no_trace(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []

    def counted(
        module: TrainedModule, inputs: tuple[Tensor, ...], fabric: Fabric, processes: Processes
    ) -> None:
        tried.append(len(inputs[0]))
        check_step(module, inputs, fabric, processes)

    monkeypatch.setattr(module_task, "check_step", counted)
    data = WRITERS[name](tmp_path / "data")
    RUNS[name](data, options(tmp_path / "tried"))
    assert len(tried) == 1
    monkeypatch.setattr(module_task, "check_step", lambda *_: None)
    RUNS[name](data, options(tmp_path / "untried"))
    assert_same_runs(tmp_path / "tried", tmp_path / "untried")


@pytest.mark.parametrize(("free", "rows"), [(2**40, [2]), (2**29, [2, 4]), (2**25, [2])])
def test_a_step_has_room_for_its_tensors_or_is_refused(
    free: int, rows: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module_task, "free_bytes", lambda *_: free)
    module, step = Wide(), (torch.ones(24, 1),)
    # Forward and backward pass hold some arrays of 24 rows of 4 MB; weights and optimizer 24 MB.
    if free < 2**30:
        with pytest.raises(RecipeError, match=r"^A training step needs \d.* are free: make room, or set "):
            check_step(module, step, Fabric(accelerator="cpu"), Processes())
    else:
        check_step(module, step, Fabric(accelerator="cpu"), Processes())
    assert module.rows == rows
    assert all(parameter.grad is None for parameter in module.parameters())


# A word of the training texts, and the number of one that is in a later batch.
WORDS = {"texts": ("train.tsv", "film", 13), "sentences": ("train.txt", "the", 13)}


@pytest.mark.parametrize("name", WORDS)
def test_a_long_text_of_a_later_batch_counts(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = WRITERS[name](tmp_path / "data")
    monkeypatch.setattr(module_task, "free_bytes", lambda *_: 0)

    def needed(out: str) -> float:
        with pytest.raises(RecipeError, match=r"^A training step needs [\d.]+ MiB of memory") as refused:
            RUNS[name](data, options(tmp_path / out))
        return float(str(refused.value).split()[4])

    without = needed("short")
    file, word, number = WORDS[name]
    parts = (data / file).read_text().split(word)
    long = " ".join([word] * 100)
    (data / file).write_text(word.join(parts[:number]) + long + word.join(parts[number:]))
    assert needed("long") > 2 * without


class Line(TrainedModule):
    """Learns to give half of a number."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 1)

    def forward(self, numbers: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        error = ((self.layer(numbers) - numbers / 2) ** 2).mean()
        return error, {"root": error.detach().sqrt()}


class Numbers(ItemLoader[int, Tensor]):
    """The numbers of the items themselves."""

    def batch(self, indices: Sequence[int]) -> Tensor:
        return torch.tensor(indices, dtype=torch.float32).unsqueeze(1)

    def length(self, index: int) -> int:
        return index


def fit(out: Path, figure: Callable[[int], float], *, every: int = 1) -> TrainingLoop[Tensor]:
    """A run whose figure is a function of how often it was measured before."""
    measured: list[float] = []

    def validate() -> dict[str, float]:
        measured.append(figure(len(measured)))
        return {"figure": measured[-1]}

    recipe = tiny_text_recipe(epochs=4, log_every_steps=2, evaluate_every_epochs=every)
    with open_run(recipe, RunOptions(out, device="cpu", show_progress=False)) as run:
        return ModuleTask(
            run=run,
            recipe=recipe,
            module=Line(),
            batches=Numbers(range(20), 8),
            inputs=lambda batch, _: (batch,),
            validate=validate,
            chosen_by="figure",
            fingerprint="",
        ).fit()


def test_the_best_is_the_first_of_the_highest_and_no_number_never_is(tmp_path: Path) -> None:
    loop = fit(tmp_path / "out", [math.nan, 2.0, 1.0, 2.0].__getitem__)
    assert loop.metrics == {"figure": 2.0}
    assert loop.load_best().position.epoch == 2
    with pytest.raises(TrainingError, match="figure of the validation examples was never a number"):
        fit(tmp_path / "never", lambda _: math.nan)


def test_a_report_is_that_of_encoders(tmp_path: Path) -> None:
    fit(tmp_path / "out", float, every=3)
    training = [line for line in lines(tmp_path / "out") if line["kind"] == "train"]
    assert [(line["step"], line["averaged_steps"]) for line in training] == [
        (step, 2) for step in range(2, 13, 2)
    ]
    assert {"loss", "root", "gradient_norm", "samples_per_second", "learning_rate"} <= training[0].keys()
    # After three epochs, and at the end.
    assert [line["step"] for line in lines(tmp_path / "out") if line["kind"] == "validation"] == [9, 12]


def test_what_was_left_out_is_named_and_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log, images = Rejections(10, 1, source="a.txt"), Rejections(3, 1, source="the images", unit="image")
    whole = Rejections(5, 1, source="b.txt")
    log.add(4, "it is not UTF-8")
    images.add(2, "it is cut off")
    images.add(3, "it is cut off")
    with open_run(tiny_text_recipe(), RunOptions(tmp_path / "out", device="cpu")) as run:
        assert [left.line for left in run.report(log, whole, images)] == [4, 2, 3]
    assert "Line 4: it is not UTF-8." in caplog.text
    assert "2 of 3 images of the images" in caplog.text
    assert "b.txt" not in caplog.text


def with_bert() -> TextRecipe:
    """The tiny recipe with a backbone of transformers."""
    tree = tiny_text_recipe().model_dump(mode="json")
    tree["model"] |= {"architecture": "bert", "options": BERT_SIZE}
    return parse_as(TextRecipe, tree, "The tiny recipe")


FORMS: dict[str, dict[str, Run]] = {
    "images": {"frozen": lambda data, to: classify_images(tiny_image_recipe(frozen=True), data, to)},
    "texts": {"bert": lambda data, to: classify_texts(with_bert(), data, to)},
    "questions": {},
    "sentences": {
        "gaussian": lambda data, to: train_language_model(tiny_language_recipe(), data, to),
        "refined": lambda data, to: train_language_model(
            tiny_language_recipe(reclaim=True, refinement={"steps": 2}), data, to
        ),
    },
}
CASES = [(task, form) for task, forms in FORMS.items() for form in ("", *forms)]


@pytest.mark.slow
@pytest.mark.parametrize(("task", "form"), CASES, ids=[" ".join(case).strip() for case in CASES])
def test_no_step_waits(
    task: str, form: str, device: torch.device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = WRITERS[task](tmp_path / "data")
    run = FORMS[task].get(form, RUNS[task])
    run_steps(
        lambda name: run(data, RunOptions(tmp_path / "run", device=name, show_progress=False)),
        device,
        monkeypatch,
    )

"""The trial before a task's first step: it leaves no trace, and refuses a step without room."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from tests.training.classification.samples import tiny_recipe as tiny_image_recipe
from tests.training.classification.samples import write_squares
from tests.training.papers.samples import (
    tiny_language_recipe,
    tiny_question_recipe,
    tiny_text_recipe,
    write_sentences,
    write_sst,
    write_vqa,
)
from tests.training.runs import assert_same_runs
from training.classification.run import classify_images
from training.common.errors import RecipeError
from training.papers.glue import classify_texts
from training.papers.language_models import train_language_model
from training.papers.vqa import answer_questions
from training.tasks import memory, problem
from training.tasks.memory import check_step
from training.tasks.opening import RunOptions
from training.tasks.problem import TaskModule
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


class Wide(TaskModule):
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

    def counted(module: TaskModule, inputs: tuple[Tensor, ...], fabric: Fabric, processes: Processes) -> None:
        tried.append(len(inputs[0]))
        check_step(module, inputs, fabric, processes)

    monkeypatch.setattr(problem, "check_step", counted)
    data = WRITERS[name](tmp_path / "data")
    RUNS[name](data, options(tmp_path / "tried"))
    assert len(tried) == 1
    monkeypatch.setattr(problem, "check_step", lambda *_: None)
    RUNS[name](data, options(tmp_path / "untried"))
    assert_same_runs(tmp_path / "tried", tmp_path / "untried")


@pytest.mark.parametrize(("free", "rows"), [(2**40, [2]), (2**29, [2, 4]), (2**25, [2])])
def test_a_step_has_room_for_its_tensors_or_is_refused(
    free: int, rows: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda *_: free)
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
    monkeypatch.setattr(memory, "free_bytes", lambda *_: 0)

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

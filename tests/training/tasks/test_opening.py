"""Runs of a task of one weight: what chooses the best checkpoint, and what a report has."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.training.papers.samples import tiny_text_recipe
from tests.training.runs import lines
from training.common.rejections import Rejections
from training.tasks.loader import ItemLoader
from training.tasks.opening import RunOptions, open_run
from training.tasks.problem import TaskModule, TaskProblem
from training.trainer.loop import TrainingLoop
from training.trainer.run_state.errors import TrainingError


class Line(TaskModule):
    """Learns to give half of a number."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 1)

    def forward(self, numbers: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        error = ((self.layer(numbers) - numbers / 2) ** 2).mean()
        return error, {"root": error.detach().sqrt()}


class Numbers(ItemLoader[int, Tensor]):
    """The numbers of the items themselves."""

    def batch(self, places: Sequence[int]) -> Tensor:
        return torch.tensor(places, dtype=torch.float32).unsqueeze(1)

    def length(self, place: int) -> int:
        return place


def fit(out: Path, figure: Callable[[int], float], *, every: int = 1) -> TrainingLoop[Tensor]:
    """A run whose figure is a function of how often it was measured before."""
    measured: list[float] = []

    def validate() -> dict[str, float]:
        measured.append(figure(len(measured)))
        return {"figure": measured[-1]}

    recipe = tiny_text_recipe(epochs=4, log_every_steps=2, evaluate_every_epochs=every)
    with open_run(recipe, RunOptions(out, device="cpu", show_progress=False)) as run:
        problem = TaskProblem(
            module=Line(),
            batches=Numbers(range(20), 8),
            inputs=lambda batch, _: (batch,),
            validate=validate,
            chosen_by="figure",
            fingerprint="",
            fabric=run.fabric,
            processes=run.processes,
        )
        return run.fit(problem)


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
    lines, images = Rejections(10, 1, source="a.txt"), Rejections(3, 1, source="the images", unit="image")
    whole = Rejections(5, 1, source="b.txt")
    lines.add(4, "it is not UTF-8")
    images.add(2, "it is cut off")
    images.add(3, "it is cut off")
    with open_run(tiny_text_recipe(), RunOptions(tmp_path / "out", device="cpu")) as run:
        assert run.report(lines, whole, images) == 3
    assert "Line 4: it is not UTF-8." in caplog.text
    assert "2 of 3 images of the images" in caplog.text
    assert "b.txt" not in caplog.text

"""Figures of the steps between two lines, and the file that they are written to."""

from pathlib import Path

import pytest
import torch

from tests.training.runs import lines
from training.objectives.base import LossOutput
from training.trainer.run_state.errors import TrainingError
from training.trainer.run_state.metrics_log import LossFigures, MetricsLog
from training.trainer.run_state.processes import Processes

CPU = torch.device("cpu")


def test_figures_are_means_and_start_anew() -> None:
    figures = LossFigures(CPU, Processes())
    for step, value in enumerate([1.0, 2.0, 6.0], 1):
        output = LossOutput(torch.tensor(value), {"part": torch.tensor(value * 10)})
        figures.add(step, 4, output, torch.tensor(value / 2))
    means = figures.read()
    assert (means["loss"], means["part"], means["gradient_norm"]) == (3.0, 30.0, 1.5)
    figures.add(4, 4, LossOutput(torch.tensor(5.0), {"part": torch.tensor(0.0)}), torch.tensor(1.0))
    assert figures.read()["loss"] == 5.0


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("of", ["loss", "gradient"])
def test_figures_name_the_first_step_that_is_no_number(bad: float, of: str) -> None:
    figures = LossFigures(CPU, Processes())
    for step, value in enumerate([1.0, bad, 3.0, bad], 1):
        loss, norm = (value, 1.0) if of == "loss" else (1.0, value)
        figures.add(step, 1, LossOutput(torch.tensor(loss), {}), torch.tensor(norm))
    with pytest.raises(TrainingError, match=f"{of} of step 2 is not"):
        figures.check()


def test_metrics_beyond_the_checkpoint_are_taken_out(tmp_path: Path) -> None:
    with MetricsLog(tmp_path, 0) as log:
        for step in (10, 20, 30):
            log.write(step, "train", {"loss": float(step)})
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 40, "los')
    with MetricsLog(tmp_path, 20) as log:
        log.write(30, "train", {"loss": 0.5})
    assert [(line["step"], line["loss"]) for line in lines(tmp_path)] == [(10, 10.0), (20, 20.0), (30, 0.5)]

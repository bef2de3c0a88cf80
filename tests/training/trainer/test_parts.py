"""The parts around the loop: rates, groups, figures, metrics, checkpoints, prefetching, stopping."""

import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch

from tests.training.trainer.scenes import tiny_recipe
from training.data.image_source import PreparedImages
from training.data.prepared_rows import PreparedRows
from training.models.dual_encoder import build_dual_encoder
from training.models.learned_tokenizer import learn_tokenizer
from training.objectives.base import LossOutput, ObjectiveContext
from training.recipes.schema import OptimizerConfig, ScheduleConfig
from training.trainer.batches import prefetched
from training.trainer.loop import StopSignal
from training.trainer.optimisation.parameter_groups import (
    build_optimizer,
    learning_rate_factor,
    optimizer_of,
    set_learning_rate,
)
from training.trainer.run_state.errors import TrainingError
from training.trainer.run_state.metrics_log import LossFigures, MetricsLog
from training.trainer.run_state.processes import Processes
from training.trainer.task import TrainingTask
from training.trainer.validation import is_better

CPU = torch.device("cpu")


def test_learning_rate_warms_up_and_follows_a_cosine_to_nearly_zero() -> None:
    config = ScheduleConfig(name="cosine", warmup_steps=4)
    factors = [learning_rate_factor(config, step, 24) for step in range(24)]
    assert factors[:4] == [0.25, 0.5, 0.75, 1.0]
    assert factors[4] == 1.0
    assert factors[14] == pytest.approx(0.5)
    assert factors[4:] == sorted(factors[4:], reverse=True)
    assert 0 < factors[-1] < 0.01


def test_constant_learning_rate() -> None:
    config = ScheduleConfig(name="constant", warmup_steps=2)
    assert [learning_rate_factor(config, step, 5) for step in range(5)] == [0.5, 1, 1, 1, 1]


def test_step_decay_falls_after_its_shares_of_the_run() -> None:
    """VSE++: a tenth of the rate in the second half."""
    config = ScheduleConfig(name="step")
    factors = [learning_rate_factor(config, step, 6) for step in range(6)]
    assert factors == pytest.approx([1, 1, 1, 0.1, 0.1, 0.1])
    config = ScheduleConfig(name="step", warmup_steps=1, decay=0.5, decay_at=(0.25, 0.75))
    factors = [learning_rate_factor(config, step, 8) for step in range(8)]
    assert factors == [1, 1, 0.5, 0.5, 0.5, 0.5, 0.25, 0.25]


@pytest.mark.parametrize("shares", [(0.0,), (1.0,), (0.7, 0.3), (0.5, 0.5)])
def test_step_decay_refuses_shares_that_mean_nothing(shares: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="decay_at"):
        ScheduleConfig(name="step", decay_at=shares)


@pytest.mark.parametrize("name", ["adam", "adamw"])
def test_betas_and_eps_are_those_of_the_recipe_and_by_default_torch_s(name: Literal["adam", "adamw"]) -> None:
    weights = [torch.nn.Parameter(torch.zeros(2, 2))]
    plain = optimizer_of(weights, [], OptimizerConfig(name=name, lr=1e-2), CPU).defaults
    assert (plain["betas"], plain["eps"]) == ((0.9, 0.999), 1e-8)
    config = OptimizerConfig.model_validate({"name": name, "lr": 1e-2, "betas": [0.8, 0.98], "eps": 1e-6})
    changed = optimizer_of(weights, [], config, CPU)
    assert all((group["betas"], group["eps"]) == ((0.8, 0.98), 1e-6) for group in changed.param_groups)


@pytest.mark.parametrize(
    "wrong", [{"betas": [0.9, 1.0]}, {"betas": [-0.1, 0.999]}, {"betas": [0.9]}, {"eps": 0}, {"eps": -1e-8}]
)
def test_betas_and_eps_that_no_optimizer_takes_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        OptimizerConfig.model_validate({"lr": 1e-2, **wrong})


def test_every_parameter_has_its_rate_and_only_matrices_decay() -> None:
    recipe = tiny_recipe()
    tokenizer = learn_tokenizer(["a red square"], 300)
    task = TrainingTask(
        build_dual_encoder(recipe.model, tokenizer, load_pretrained=False),
        recipe.objective.build(ObjectiveContext(recipe.model.dim)),
    )
    config = OptimizerConfig(name="adamw", lr=1e-2, tower_lr=1e-3, weight_decay=0.1)
    optimizer = build_optimizer(task, recipe.model_copy(update={"optimizer": config}), CPU)
    set_learning_rate(optimizer, 0.5)
    settings = {
        id(parameter): (group["lr"], group["weight_decay"])
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    towers = {id(parameter) for parameter in task.model.tower_parameters()}
    named = dict(task.named_parameters())
    assert len(settings) == len(named)
    for parameter in named.values():
        rate = 0.5e-3 if id(parameter) in towers else 0.5e-2
        assert settings[id(parameter)] == (rate, 0.1 if parameter.ndim > 1 else 0.0)
    assert settings[id(named["objective.scale.log_scale"])] == (0.5e-2, 0.0)


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
def test_figures_name_the_first_step_whose_loss_is_no_number(bad: float) -> None:
    figures = LossFigures(CPU, Processes())
    for step, value in enumerate([1.0, bad, 3.0, bad], 1):
        figures.add(step, 1, LossOutput(torch.tensor(value), {}), torch.tensor(value))
    with pytest.raises(TrainingError, match="loss of step 2 is not"):
        figures.check()


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_figures_name_the_first_step_whose_gradient_is_no_number(bad: float) -> None:
    figures = LossFigures(CPU, Processes())
    for step, value in enumerate([1.0, 1.0, bad, 1.0], 1):
        figures.add(step, 1, LossOutput(torch.tensor(1.0), {}), torch.tensor(value))
    with pytest.raises(TrainingError, match="gradient of step 3 is not"):
        figures.check()


def test_metrics_beyond_the_checkpoint_are_taken_out(tmp_path: Path) -> None:
    with MetricsLog(tmp_path, 0) as log:
        for step in (10, 20, 30):
            log.write(step, "train", {"loss": float(step)})
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 40, "los')
    with MetricsLog(tmp_path, 20) as log:
        log.write(30, "train", {"loss": 0.5})
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [(line["step"], line["loss"]) for line in lines] == [(10, 10.0), (20, 20.0), (30, 0.5)]


def test_prefetching_keeps_order_and_passes_errors_on() -> None:
    def failing() -> Iterator[int]:
        yield from range(3)
        raise TrainingError("broken")

    with prefetched(iter(range(50))) as items:
        assert list(items) == list(range(50))
    with prefetched(failing()) as items, pytest.raises(TrainingError, match="broken"):
        list(items)


def test_stop_signal_notes_the_first_and_restores_the_handlers() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with StopSignal() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.received is signal.SIGTERM
        assert signal.getsignal(signal.SIGTERM) is before
    assert signal.getsignal(signal.SIGTERM) is before


def test_stop_signal_works_outside_the_main_thread() -> None:
    noted: list[signal.Signals | None] = []

    def use() -> None:
        with StopSignal() as stop:
            noted.append(stop.received)

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert noted == [None]


def test_better_is_higher_except_for_the_loss() -> None:
    assert is_better("rsum", {"rsum": 2.0}, {"rsum": 1.0})
    assert not is_better("rsum", {"rsum": float("nan")}, {"rsum": 1.0})
    assert not is_better("loss", {"loss": float("nan")}, {})
    assert is_better("loss", {"loss": 1.0}, {"loss": 2.0})
    assert not is_better("loss", {"loss": 2.0}, {"loss": 2.0})
    assert is_better("rsum", {"rsum": 0.0}, {})


def test_cache_skips_rows_that_could_not_be_read() -> None:
    pixels = torch.arange(4, dtype=torch.uint8).view(4, 1, 1, 1).expand(4, 3, 2, 2)
    readable = [0, 2, 3]
    rows = PreparedRows(pixels.numpy(), readable, np.array(readable))
    images, kept = PreparedImages(rows).load(np.array([2, 1]))
    assert images[:, 0, 0, 0].tolist() == [3, 2]
    assert kept == [0, 1]

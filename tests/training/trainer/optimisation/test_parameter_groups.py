"""Learning rates over a run, and those of each parameter."""

from typing import Any, Literal

import pytest
import torch

from tests.training.trainer.scenes import tiny_recipe
from training.models.dual_encoder import build_dual_encoder
from training.models.learned_tokenizer import learn_tokenizer
from training.objectives.base import ObjectiveContext
from training.recipes.schema import OptimizerConfig, ScheduleConfig
from training.trainer.modules import EncoderModule
from training.trainer.optimisation.parameter_groups import (
    build_optimizer,
    learning_rate_factor,
    optimizer_of,
    set_learning_rate,
)

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
    task = EncoderModule(
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

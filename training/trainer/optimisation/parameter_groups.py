"""Parameter groups, the optimizer and the learning rate of a step."""

import inspect
import math
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeAlias

import torch
from torch import nn
from torch.optim import Optimizer

from training.common.errors import RecipeError
from training.recipes.schema import OptimizerConfig, Recipe, ScheduleConfig
from training.trainer.modules import EncoderModule

# An optimizer that was passed as an object; a recipe can only say which it was.
_GIVEN: Final = "given: "
MakeOptimizer: TypeAlias = Callable[[list[dict[str, Any]]], Optimizer]


def build_optimizer(
    task: EncoderModule, recipe: Recipe, device: torch.device, make: MakeOptimizer | None = None
) -> Optimizer:
    """Return the optimizer of everything that a task trains.

    Args:
        task: Model and objective.
        recipe: Recipe of the run.
        device: Device of the task.
        make: Makes another one from the parameter groups.
    """
    config = recipe.optimizer
    if recipe.train.lora is not None:
        config = config.model_copy(update={"tower_lr": recipe.train.lora.lr})
    towers = list(task.model.tower_parameters())
    others = [*task.model.head_parameters(), *task.objective.parameters()]
    return optimizer_of(towers, others, config, device, make)


def optimizer_of(
    towers: list[nn.Parameter],
    others: list[nn.Parameter],
    config: OptimizerConfig,
    device: torch.device,
    make: MakeOptimizer | None = None,
) -> Optimizer:
    """Return an optimizer with the towers at their own rate and no decay on biases, norms and scalars."""
    groups = [
        *parameter_groups(towers, config.tower_lr or config.lr, config.weight_decay),
        *parameter_groups(others, config.lr, config.weight_decay),
    ]
    if make is not None:
        return make(groups)
    kind, options = check_optimizer(config)
    fused = {"fused": device.type == "cuda"} if "fused" in inspect.signature(kind).parameters else {}
    return kind(groups, lr=config.lr, **fused, **options)


def given_optimizer(config: OptimizerConfig, make: MakeOptimizer) -> OptimizerConfig:
    """Return the settings of an optimizer that was passed as an object, with the name of its function.

    Raises:
        RecipeError: It is no function.
    """
    if not callable(make):
        raise RecipeError(
            "optimizer= is a function that makes an optimizer from parameter groups, not "
            f"{type(make).__name__}: give torch.optim.SGD, or functools.partial(torch.optim.SGD, ...)."
        )
    kind = make.func if isinstance(make, partial) else make
    name = getattr(kind, "__qualname__", type(kind).__qualname__)
    return config.model_copy(update={"name": f"{_GIVEN}{name}"})


def check_optimizer(config: OptimizerConfig) -> tuple[Callable[..., Optimizer], dict[str, Any]]:
    """Return the class of a recipe's optimizer and its arguments.

    Raises:
        RecipeError: torch.optim has no such class, or it needs a closure or refuses an argument.
    """
    if config.name.startswith(_GIVEN):
        raise RecipeError(
            f"The recipe was trained with an object of {config.name.removeprefix(_GIVEN)}: pass it as "
            "optimizer=, or set optimizer.name."
        )
    name = {"adam": "Adam", "adamw": "AdamW"}.get(config.name, config.name)
    kind: Any = getattr(torch.optim, name, None)
    is_optimizer = isinstance(kind, type) and issubclass(kind, Optimizer)
    if not is_optimizer or name in ("Optimizer", "LBFGS"):
        raise RecipeError(
            f"optimizer.name is {config.name}: set it to adam, adamw or another class of torch.optim that "
            "needs no closure, such as SGD."
        )
    arguments = inspect.signature(kind).parameters.keys() - {"params", "lr", "weight_decay"}
    options = {name: getattr(config, name) for name in ("betas", "eps") if name in arguments} | config.options
    for option in options:
        if option not in arguments:
            raise RecipeError(
                f"optimizer.options.{option}: torch.optim.{name} has no such argument; it has "
                f"{', '.join(sorted(arguments))}."
            )
    try:
        kind([nn.Parameter(torch.zeros(1, 1))], lr=config.lr, **options)
    except (TypeError, ValueError) as error:
        raise RecipeError(f"optimizer.options: torch.optim.{name} refuses them: {error}.") from None
    return kind, options


def parameter_groups(parameters: list[nn.Parameter], lr: float, weight_decay: float) -> list[dict[str, Any]]:
    """Groups of one learning rate, with decay on matrices and none on biases, norms and scalars."""
    matrices = [parameter for parameter in parameters if parameter.ndim > 1]
    rest = [parameter for parameter in parameters if parameter.ndim <= 1]
    groups = [(matrices, weight_decay), (rest, 0.0)]
    return [
        {"params": members, "lr": lr, "base_lr": lr, "weight_decay": decay}
        for members, decay in groups
        if members
    ]


def learning_rate_factor(config: ScheduleConfig, step: int, total_steps: int) -> float:
    """Share of the full learning rate at a step, counted from 0: linear warm-up, then what the name says."""
    if step < config.warmup_steps:
        return (step + 1) / config.warmup_steps
    if config.name == "constant":
        return 1.0
    if config.name == "step":
        return config.decay ** sum(step >= share * total_steps for share in config.decay_at)
    progress = (step - config.warmup_steps) / max(1, total_steps - config.warmup_steps)
    if config.name == "linear":
        return 1 - min(1.0, progress)
    return 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))


def set_learning_rate(optimizer: Optimizer, factor: float) -> None:
    """Set the rate of every group to this share of its full rate."""
    for group in optimizer.param_groups:
        group["lr"] = factor * group["base_lr"]

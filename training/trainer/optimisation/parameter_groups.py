"""Parameter groups, the optimizer and the learning rate of a step."""

import math
from typing import Any

import torch
from torch import nn
from torch.optim import Adam, AdamW, Optimizer

from training.recipes.schema import OptimizerConfig, ScheduleConfig
from training.trainer.task import TrainingTask


def build_optimizer(task: TrainingTask, config: OptimizerConfig, device: torch.device) -> Optimizer:
    """The optimizer of all that a task trains."""
    towers = list(task.model.tower_parameters())
    return adam(towers, [*task.model.head_parameters(), *task.objective.parameters()], config, device)


def adam(
    towers: list[nn.Parameter], others: list[nn.Parameter], config: OptimizerConfig, device: torch.device
) -> Optimizer:
    """Adam or AdamW with the towers at their own rate and no decay on biases, norms and scalars."""
    groups = [
        *parameter_groups(towers, config.tower_lr or config.lr, config.weight_decay),
        *parameter_groups(others, config.lr, config.weight_decay),
    ]
    kind = Adam if config.name == "adam" else AdamW
    return kind(groups, lr=config.lr, betas=config.betas, eps=config.eps, fused=device.type == "cuda")


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

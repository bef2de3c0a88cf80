"""What the loss side of a step costs for each objective, beside InfoNCE.

Run `python -m tests.benchmarks.objective_cost`. It takes 64 items of 512 numbers, with 49 regions, up to 12
sentences and 14 labels each, an embedding of 768 numbers to decode and 32 words of 8,192 to write, and
measures an objective's forward and backward pass and its `after_step`, without encoders, in float32 on one
thread. It counts the processor's time, which other programs do not add to, and objectives take turns; each
ratio is to InfoNCE in the same run.
"""

import argparse
import statistics
import time
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import torch
import typer
from torch import Tensor

from training.models.config import PairAttentionConfig
from training.models.features import Features, ModalityFeatures, Source
from training.models.preprocessing import TokenBatch
from training.objectives.base import Objective, ObjectiveContext, objective_names, parse_objective

_LIMIT = 1.5
_BATCH = 64
_DIM = 512
_REGIONS = 49
_SENTENCES = 12
_TARGET_DIM = 768
_WORDS = 32
_VOCABULARY = 8192
_LABELS = 14
# Settings beside an objective's own defaults, which are measured for all.
_FORMS: Mapping[str, Mapping[str, Any]] = {
    "ltd, dual": {"name": "ltd", "mode": "dual"},
    "ltd on quest": {"name": "ltd", "base": {"name": "quest"}},
    "quest, SIC + UIC": {"name": "quest", "unique": "uic"},
    "reclaim, 10 neighbours": {"name": "reclaim", "neighbours": 10},
    "reclaim on vse": {"name": "reclaim", "base": {"name": "vse"}},
    "sum of infonce and reco": {"sum": ["infonce", "reco"]},
    "uniformity, xent": {"name": "local_uniformity", "kind": "xent"},
    "vse, all negatives": {"name": "vse", "hardest": False},
}
_BLADES = ("infonce", "reco")


def main() -> None:
    """Measure, and print a table; what costs more than 1.5 times InfoNCE is marked."""
    arguments = _arguments()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    context = ObjectiveContext(
        _DIM,
        instances=arguments.instances,
        target_dim=_TARGET_DIM,
        vocabulary=_VOCABULARY,
        labels=_LABELS,
        pair_attention=PairAttentionConfig(),
    )
    single, blades = _batch(arguments.instances), _batch(arguments.instances, blades=2)
    settings = {name: {"name": name} for name in objective_names() if name != "sum"} | dict(_FORMS)
    contestants = {name: (parse_objective(one).build(context), single) for name, one in settings.items()}
    for name in _BLADES:
        contestants[f"{name} on 2-blades"] = parse_objective({"name": name}).build(context), blades
    if arguments.only:
        contestants = {name: contestants[name] for name in ("infonce", *arguments.only)}
    times = _measure(contestants, arguments.rounds)
    _print(times, arguments.instances)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="+", help="what to measure beside InfoNCE; all if not given")
    parser.add_argument("--rounds", type=int, default=30, help="steps of each objective")
    parser.add_argument("--instances", type=int, default=6000, help="items that a memory has rows for")
    return parser.parse_args()


def _batch(instances: int, blades: int = 1) -> Features:
    def modality(entries: int) -> ModalityFeatures:
        mask = torch.arange(entries) < torch.randint(2, entries + 1, (_BATCH, 1))
        if entries == _REGIONS:
            mask = torch.ones_like(mask)
        weights = torch.rand(_BATCH, entries) * mask
        return ModalityFeatures(
            embedding=torch.randn(_BATCH, blades, _DIM) if blades > 1 else torch.randn(_BATCH, _DIM),
            local=torch.randn(_BATCH, entries, _DIM),
            local_mask=mask,
            local_weights=weights / weights.sum(dim=1, keepdim=True),
            shared=torch.randn(_BATCH, _DIM),
            unique=torch.randn(_BATCH, _DIM),
            concepts=torch.randn(_BATCH, _LABELS),
            frame=torch.eye(2, 3).repeat(_BATCH, 1, 1),
        )

    words = torch.randint(_VOCABULARY, (_BATCH, 1 + _WORDS))
    mask = torch.eye(_BATCH, dtype=torch.bool)
    mask[0, 1] = mask[1, 0] = True
    views: tuple[Source, ...] = ("image", "view", "momentum", "momentum_view")
    return Features(
        {"text": modality(_SENTENCES), **{view: modality(_REGIONS) for view in views}},
        mask,
        items=torch.randperm(instances)[:_BATCH],
        extras={
            "targets": torch.randn(_BATCH, _TARGET_DIM),
            "captions": TokenBatch(words, torch.ones_like(words), truncations=(None,) * _BATCH),
            "labels": torch.rand(_BATCH, _LABELS) < 0.2,
        },
    )


def _measure(contestants: Mapping[str, tuple[Objective, Features]], rounds: int) -> dict[str, list[float]]:
    """Milliseconds of each step of each objective."""
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(rounds + 3):
        for name, (objective, batch) in contestants.items():
            taken = _step(objective, _learned(batch))
            # The first ones find nothing cached.
            if number >= 3:
                times[name].append(taken)
    return times


def _learned(batch: Features) -> Features:
    """The batch with features that want gradients, as from an encoder."""

    def learned(features: ModalityFeatures) -> ModalityFeatures:
        held = {field.name: getattr(features, field.name) for field in fields(features)}
        return replace(features, **{name: _leaf(value) for name, value in held.items()})

    modalities = {modality: learned(features) for modality, features in batch.modalities.items()}
    return replace(batch, modalities=modalities)


def _leaf(value: Tensor) -> Tensor:
    return value.detach().requires_grad_() if value.is_floating_point() else value


def _step(objective: Objective, batch: Features) -> float:
    objective.zero_grad(set_to_none=True)
    started = time.process_time()
    objective(batch).backward()
    objective.after_step()
    return (time.process_time() - started) * 1000


def _print(times: Mapping[str, list[float]], instances: int) -> None:
    medians = {name: statistics.median(taken) for name, taken in times.items()}
    base = medians["infonce"]
    typer.echo(f"B = {_BATCH}, D = {_DIM}, {_REGIONS} regions, {_SENTENCES} sentences, {instances} in memory")
    typer.echo(f"{'objective':26}{'ms':>10}{'of InfoNCE':>12}")
    for name, median in sorted(medians.items(), key=lambda item: item[1]):
        mark = f"  above {_LIMIT}" if median > _LIMIT * base else ""
        typer.echo(f"{name:26}{median:10.2f}{median / base:12.2f}{mark}")


if __name__ == "__main__":
    main()

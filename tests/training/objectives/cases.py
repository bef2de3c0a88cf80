"""Every objective that a recipe can name, and batches that have all that any of them needs."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields, replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from training.models.config import PairAttentionConfig
from training.models.features import Extra, Features, ModalityFeatures
from training.models.preprocessing import TokenBatch
from training.objectives.base import (
    Objective,
    ObjectiveConfig,
    ObjectiveContext,
    objective_names,
    parse_objective,
)

DIM = 9
INSTANCES = 24
VOCABULARY = 7
LABELS = 3

# Settings that make an objective small; where a name has several forms, each is a case of its own.
_FORMS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "infonce": {
        "": {},
        "convirt": {"image_weight": 0.75, "temperature": 0.1, "learnable_temperature": False},
        "blades": {},
        "three-blades": {},
    },
    "reco": {
        "": {},
        "balanced": {"reduction": "balanced"},
        "fourth-power": {"negative_power": 4, "threshold": 0.1},
        "blades": {},
    },
    "sum": {
        "": {
            "objectives": ["infonce", {"name": "reco", "negative_weight": 1.2, "negative_power": 4}],
            "weights": [1, 1 / 64],
        },
        "ltd": {"objectives": [{"name": "ltd", "hidden": 16}, "vse"], "weights": [0.5, 2]},
    },
    "byol": {"": {"hidden": 8}},
    "simclr": {"": {}, "blades": {}},
    "sigmoid": {"": {}, "blades": {}},
    "dpc": {"": {}, "instance": {"instance_steps": 1000}},
    "sco": {"": {"width": 8}},
    "caption_lstm": {"": {"width": 8}},
    "caption_transformer": {"": {"width": 8, "layers": 2, "heads": 2, "dropout": 0}},
    "contrastive_binary": {"": {"hidden": 16}},
    "local_uniformity": {"gauss": {"kind": "gauss"}, "xent": {"kind": "xent"}},
    "ltd": {"dual": {"mode": "dual", "hidden": 16}, "constrained": {"mode": "constrained", "hidden": 16}},
    "reclaim": {
        "": {"neighbours": 3, "critic_width": 8},
        "vse": {"neighbours": 3, "critic_width": 8, "base": {"name": "vse"}},
        "ltd": {"neighbours": 3, "critic_width": 8, "base": {"name": "ltd", "hidden": 16}},
        "batch": {"negatives": "batch", "critic_width": 8},
    },
    "orthogonality": {"": {}, "balanced": {"reduction": "balanced"}, "blades": {}},
    "scan": {"words": {}, "regions": {}, "words-mean": {"hardest": False}},
    "vse": {"": {}, "all": {"hardest": False}, "blades": {}},
    "ifm": {"": {}, "reco": {"base": {"name": "reco"}}, "vse": {"base": {"name": "vse"}}, "blades": {}},
    "quest": {
        "": {},
        "sic": {"unique": "none"},
        "sic-sic": {"unique": "sic"},
        "sic-uic": {"unique": "uic"},
        "uic": {"shared": False, "unique": "uic"},
        "p-uic": {"shared": False},
        "learned-penalty": {"learnable_penalty": True},
    },
}

# Cases with a factor or with negatives that are constants by definition although they depend on features, so
# that finite differences are not the gradient; QUEST's own test holds its factor fixed.
_STOPPED = frozenset({"quest", "quest-p-uic", "quest-learned-penalty", "reclaim-batch"})


@cache
def cases() -> dict[str, ObjectiveConfig]:
    """Settings by the name of the case; an objective without forms of its own stands with its defaults."""
    return {
        f"{name}-{form}" if form else name: parse_objective({"name": name, **settings})
        for name in objective_names()
        for form, settings in _FORMS.get(name, {"": {}}).items()
    }


@cache
def cases_of_processes() -> dict[str, ObjectiveConfig]:
    """All cases, and one that draws anew for every loss, so that the others' tests say nothing of it."""
    random = {"name": "reclaim", "negatives": "random", "critic_width": 8}
    return cases() | {"reclaim-random": parse_objective(random)}


def slow_but_first(names: Iterable[str], *, longer: Collection[str] = ()) -> list[object]:
    """Cases for parametrize: of each objective the first, and its other forms and longer ones marked slow."""
    seen: set[type[ObjectiveConfig]] = set()
    marked: list[object] = []
    for name in names:
        kind = type(cases()[name])
        slow = kind in seen or name in longer
        marked.append(pytest.param(name, marks=pytest.mark.slow) if slow else name)
        seen.add(kind)
    return marked


def blades_of(name: str) -> int:
    """How many vectors an embedding has in a case."""
    if name.endswith("-three-blades"):
        return 3
    return 2 if name.endswith("-blades") else 1


def follows_finite_differences(name: str) -> bool:
    """Whether the gradient of a case is that of its value."""
    return name not in _STOPPED


def attention_of(name: str) -> PairAttentionConfig | None:
    """How a model of a case compares images and texts by their local features, if it does."""
    if not name.startswith("scan"):
        return None
    return PairAttentionConfig(
        queries="regions" if "regions" in name else "words", pooling="mean" if "mean" in name else "logsumexp"
    )


def build_case(name: str, batch: Features) -> Objective:
    """The objective of a case, as `build` does it."""
    return build(cases_of_processes()[name], batch, attention_of(name))


def build(
    settings: ObjectiveConfig, batch: Features, attention: PairAttentionConfig | None = None
) -> Objective:
    """The objective in float64, from the same random weights each time, not in training."""
    torch.manual_seed(0)
    targets = batch.extras.get("targets")
    context = ObjectiveContext(
        dim=DIM,
        embedding_dim=DIM,
        instances=INSTANCES,
        groups=tuple(range(INSTANCES)),
        target_dim=targets.shape[1] if isinstance(targets, Tensor) else None,
        vocabulary=VOCABULARY,
        labels=LABELS,
        pair_attention=attention,
    )
    return settings.build(context).double().eval()


def random_batch(size: int = 6, seed: int = 0, *, masked: bool = True, blades: int = 1) -> Features:
    """Features of images, texts and views, of every kind; items, targets, captions and labels.

    The second views are zoomed in on quarters of the images, of which the first views show the left half.
    """
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    def modality(entries: int, mask: Tensor) -> ModalityFeatures:
        weights = draw(size, entries).exp() * mask
        return ModalityFeatures(
            embedding=draw(size, DIM) if blades == 1 else draw(size, blades, DIM),
            local=draw(size, entries, DIM),
            local_mask=mask,
            local_weights=weights / weights.sum(dim=1, keepdim=True),
            shared=draw(size, DIM),
            unique=draw(size, DIM),
        )

    lengths = torch.arange(size) % 3 + 1
    lengths[-1] = 4
    text_mask = torch.arange(4) < lengths.unsqueeze(1)
    everywhere = torch.ones((size, 4), dtype=torch.bool)
    quarters = torch.tensor([[0.0, 0.0], [0.5, 0.0], [0.0, 0.5], [0.5, 0.5]], dtype=torch.float64)
    zoom = 0.5 * torch.eye(2, dtype=torch.float64)
    frames = [torch.cat((zoom, quarters[row % 4].unsqueeze(1)), dim=1) for row in range(size)]
    half = torch.tensor([[0.5, 0, 0], [0, 1, 0]], dtype=torch.float64)
    positive_mask = torch.eye(size, dtype=torch.bool)
    positive_mask[0, 2] = positive_mask[3, 1] = True
    return Features(
        {
            "image": replace(
                modality(4, everywhere), frame=half.repeat(size, 1, 1), concepts=draw(size, LABELS)
            ),
            "text": modality(4, text_mask),
            "view": replace(modality(4, everywhere), frame=torch.stack(frames)),
            "momentum": modality(4, everywhere),
            "momentum_view": modality(4, everywhere),
        },
        positive_mask if masked else None,
        items=torch.randperm(INSTANCES, generator=generator)[:size],
        extras={
            "targets": draw(size, 5),
            "captions": _captions(size, generator),
            "labels": torch.arange(size * LABELS).view(size, LABELS) % 5 < 2,
        },
    )


def extra(batch: Features, name: str) -> Tensor:
    """Targets or labels of a batch."""
    values = batch.extras[name]
    assert isinstance(values, Tensor)
    return values


def captions(batch: Features) -> TokenBatch:
    """Texts of a batch that are written."""
    values = batch.extras["captions"]
    assert isinstance(values, TokenBatch)
    return values


def with_extras(batch: Features, **values: "Extra | None") -> Features:
    """The batch with other extras; None: without this one."""
    every = {**batch.extras, **values}
    return replace(batch, extras={name: value for name, value in every.items() if value is not None})


def _captions(size: int, generator: torch.Generator) -> TokenBatch:
    """Texts of one to three words between a start (1) and an end (2); padding is 0."""
    lengths = torch.arange(size).unsqueeze(1) % 3 + 2
    places = torch.arange(5)
    ids = torch.randint(3, VOCABULARY, (size, 5), generator=generator)
    ids[:, 0] = 1
    ids[places.expand_as(ids) == lengths] = 2
    mask = (places <= lengths).long()
    return TokenBatch(ids * mask, mask, truncations=(None,) * size)


def learnable(batch: Features) -> dict[str, Tensor]:
    """The float features that learn, by source and name: no weights or frames, nor what a copy says."""
    return {
        f"{source}.{field.name}": value
        for source, features in batch.modalities.items()
        for field in fields(features)
        if (value := getattr(features, field.name)) is not None
        and value.is_floating_point()
        and source not in ("momentum", "momentum_view")
        and field.name not in ("local_weights", "frame")
    }


def with_features(batch: Features, values: Mapping[str, Tensor]) -> Features:
    """The batch with these features in place of its own."""
    modalities = {
        modality: replace(
            features,
            **{key.split(".")[1]: value for key, value in values.items() if key.startswith(f"{modality}.")},
        )
        for modality, features in batch.modalities.items()
    }
    return replace(batch, modalities=modalities)


def without_common_padding(batch: Features) -> Features:
    """The batch with texts no longer than its longest, as a process pads them."""
    text = batch["text"]
    assert text.local is not None
    assert text.local_mask is not None
    assert text.local_weights is not None
    kept = slice(int(text.local_mask.sum(dim=1).max()))
    cut = replace(
        text,
        local=text.local[:, kept],
        local_mask=text.local_mask[:, kept],
        local_weights=text.local_weights[:, kept],
    )
    return replace(batch, modalities={**batch.modalities, "text": cut})


def rows_of(batch: Features, rows: Tensor) -> Features:
    """The items of these rows alone; the mask of matches stays that of the whole batch."""

    def select(features: ModalityFeatures) -> ModalityFeatures:
        held = {field.name: getattr(features, field.name) for field in fields(features)}
        return replace(features, **{name: value[rows] for name, value in held.items() if value is not None})

    return replace(
        batch,
        modalities={modality: select(features) for modality, features in batch.modalities.items()},
        items=None if batch.items is None else batch.items[rows],
        extras={
            name: value[rows] if isinstance(value, Tensor) else captions_of(value, rows)
            for name, value in batch.extras.items()
        },
    )


def captions_of(some: TokenBatch, rows: Tensor) -> TokenBatch:
    """The captions of these rows, padded as they were."""
    return replace(
        some,
        input_ids=some.input_ids[rows],
        attention_mask=some.attention_mask[rows],
        truncations=tuple(some.truncations[row] for row in rows.tolist()),
    )

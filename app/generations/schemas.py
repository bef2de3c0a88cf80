"""Schemas of generations, models and retrainings; `recoquest models --json` prints the same."""

import re
from dataclasses import asdict
from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from app.edge.schemas import DIGEST_PATTERN, Answer, Request
from index.catalogue.jobs import job_that_made
from index.engine import SearchEngine
from index.errors import UnregisteredModelError
from index.generations.comparison import Comparison
from index.generations.models import GenerationInfo, generations_by
from index.search.results import CosineKind, ModelInfo, cosine_kind
from training.common.manifest import Split
from training.models.bundle import CONFIG_FILE
from training.models.config import DualEncoderConfig
from training.models.onnx import has_regions

Verdict = Literal["better", "not better", "not enough to judge"]
Decision = Literal["promoted", "waiting", "rejected", "unchanged"]


class GenerationName(Answer):
    """Which generation: its number, and the encoder that made its vectors."""

    collection: str
    number: int = Field(description="Number in the addresses of generations.")
    model: str = Field(description="Name of the encoder.")
    digest: str = Field(description="Digest of the encoder.")


class Generation(GenerationName):
    """One generation of a collection."""

    state: Literal["building", "active", "retired"]
    images: int = Field(description="Images that have a vector in it.")
    texts: int = Field(description="Texts that have one.")
    missing: int = Field(description="Images of the collection that have none in it.")
    created: str | None
    activated: str | None = Field(description="Time of its latest activation.")
    comparison: Comparison | None = Field(
        description="Measured on held-out images against the one that was active."
    )

    @classmethod
    def from_info(cls, info: GenerationInfo) -> "Generation":
        """Describe a generation."""
        return cls.model_validate(info, from_attributes=True)


class Generations(Answer):
    """All generations of a collection, the latest first."""

    generations: list[Generation]


class _Kept(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelVerdict(_Kept):
    """Verdict on a new model: its metric and that of the active one, on held-out images.

    Verdicts of earlier releases have no interval, no chance and no `verdict`.

    Attributes:
        metric: Name of the metric, in percent or a sum of percents.
        before: Metric of the active model.
        after: Metric of the new model.
        held_out: Held-out split.
        images: Number of its images with texts, or with labels if the metric is of labels.
        passed: Whether the verdict is "better".
        verdict: better: the interval of the rise, by a paired bootstrap over images, is above the
            required gain, and the metric above chance; not enough to judge: fewer than 100 held-out images.
        low: Lower end of the interval.
        high: Upper end of the interval.
        chance: Metric of random vectors on these images.
    """

    metric: str
    before: float
    after: float
    held_out: Split
    images: int
    passed: bool
    verdict: Verdict | None = None
    low: float | None = None
    high: float | None = None
    chance: float | None = None


class StoredVerdict(_Kept):
    """A verdict, and the digest of the model that was active then."""

    against: str
    judgement: ModelVerdict


class Outcome(_Kept):
    """Outcome of a retraining.

    Attributes:
        verdict: promoted: the new model is searched with; waiting: a person may activate the generation;
            rejected: it is not better, and nothing was embedded with it; unchanged: no epoch was better than
            the model that the retraining went on from, so there is no new one.
        generation: Generation by the new model; None if it was rejected, or there is none.
        bundle: Digest of the new model; None if there is none.
        judgement: Verdict on the new model; None if the collection has no held-out data.
    """

    verdict: Decision
    collection: str
    generation: int | None
    bundle: str | None
    judgement: ModelVerdict | None


class ModelSummary(Answer):
    """One registered bundle."""

    name: str
    digest: str
    dim: int = Field(description="Length of its vectors.")
    score_kind: CosineKind = Field(description="Similarity that compares them.")
    metrics: dict[str, float] = Field(description="Measured when it was trained.")
    created: str
    loaded: bool = Field(description="Whether its encoder answers queries now.")
    collections: list[str] = Field(description="Collections whose active generation it made.")

    @classmethod
    def from_info(cls, info: ModelInfo, *, loaded: bool) -> "ModelSummary":
        """Describe a model; `loaded` says whether this process answers queries with it."""
        return cls.model_validate({**asdict(info), "score_kind": cosine_kind(info), "loaded": loaded})


class Models(Answer):
    """All registered bundles, the latest first."""

    models: list[ModelSummary]


class Training(Answer):
    """Training of a model, from the recipe in its bundle."""

    recipe: str
    description: str
    objective: str
    started_from: str | None = Field(description="Digest of the model whose weights it began with.")
    epochs: int | None
    steps: int | None
    batch_size: int
    seed: int


class Retraining(Answer):
    """The retraining that made a model, from its job's result."""

    job: int
    collection: str = Field(description="Collection of its training images, texts and judged hits.")
    verdict: str = Field(description="promoted, waiting or rejected, as it ended.")
    judgement: ModelVerdict | None = Field(description="Comparison with the active model; null: none.")


class ModelCard(ModelSummary):
    """One registered bundle: origin, metrics and use."""

    regions: bool = Field(
        description="Whether it can search by a part of a picture, and show what matched in an image."
    )
    towers: dict[str, str] | None = Field(
        description="Architecture of the encoder of images, of texts, of sounds; null: its files are missing."
    )
    training: Training | None = Field(description="null: the bundle keeps no recipe that this release reads.")
    retraining: Retraining | None = Field(description="null where no retraining here made it.")
    generations: list[Generation] = Field(description="Generations by this model, the latest first.")


class NewModel(Request):
    """A model to register: that of a job here, since the service takes no folder from a caller."""

    job: int = Field(ge=1, lt=2**63, description="A train or retrain job that has made a model.")


def model_card(engine: SearchEngine, digest: str, *, loaded: bool) -> ModelCard:
    """Return all details of a registered model; files of the server are not named."""
    info = next((info for info in engine.models() if info.digest == digest), None)
    if info is None:
        raise UnregisteredModelError(digest)
    with engine.home.catalogue.read() as session:
        generations = generations_by(session, digest)
        job = job_that_made(session, digest)
    return ModelCard(
        **dict(ModelSummary.from_info(info, loaded=loaded)),
        regions=has_regions(engine.home.bundles_folder / digest),
        towers=_towers(engine.home.bundles_folder / digest / CONFIG_FILE),
        training=_training(info.recipe),
        # A result has more fields than an answer shows.
        retraining=None if job is None else Retraining.model_validate({**(job.result or {}), "job": job.id}),
        generations=[Generation.from_info(each) for each in generations],
    )


def _towers(config: Path) -> dict[str, str] | None:
    try:
        read = DualEncoderConfig.model_validate_json(config.read_bytes())
    except (OSError, ValidationError):
        return None
    towers = {"image": read.image, "text": read.text, "audio": read.audio}
    return {name: tower.architecture for name, tower in towers.items() if tower is not None}


def _training(recipe_yaml: str) -> Training | None:
    """Training by the recipe of a bundle; None where there is none that this release reads."""
    try:
        # The whole schema of recipes needs torch.
        recipe = yaml.safe_load(recipe_yaml)
        train = recipe["train"]
        # Registered bundles are in folders that are named by their digests; others are nobody's business.
        base = Path(train.get("start_from") or "").name
        return Training(
            recipe=recipe["name"],
            description=recipe["description"],
            objective=recipe["objective"]["name"],
            started_from=base if re.fullmatch(DIGEST_PATTERN, base) else None,
            epochs=train.get("epochs"),
            steps=train.get("steps"),
            batch_size=train["batch_size"],
            seed=train.get("seed", 0),
        )
    except (yaml.YAMLError, ValidationError, LookupError, TypeError, AttributeError):
        return None

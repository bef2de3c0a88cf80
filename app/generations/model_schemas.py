"""Schemas of models; `recoquest models --json` prints the same."""

from pydantic import Field

from app.edge.schemas import Answer, Request
from app.generations.lifecycle.verdict import ModelVerdict
from app.generations.schemas import CosineKind, Generation, cosine_kind
from index.search.results import ModelInfo


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
    def of(cls, info: ModelInfo, *, loaded: bool) -> "ModelSummary":
        """Describe a model; `loaded` says whether this process answers queries with it."""
        return cls(
            name=info.name,
            digest=info.digest,
            dim=info.dim,
            score_kind=cosine_kind(info),
            metrics=dict(info.metrics),
            created=info.created,
            loaded=loaded,
            collections=list(info.collections),
        )


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
        description="Whether it searches by a part of a picture, and tells what matched in an image."
    )
    towers: dict[str, str] | None = Field(
        description="Architecture of the encoder of images, of texts, of sounds; null: its files are gone."
    )
    training: Training | None = Field(description="null: the bundle keeps no recipe that this release reads.")
    retraining: Retraining | None = Field(description="null where no retraining here made it.")
    generations: list[Generation] = Field(description="Generations by this model, the latest first.")


class NewModel(Request):
    """A model to register: that of a job here, since the service takes no folder from a caller."""

    job: int = Field(ge=1, lt=2**63, description="A train or retrain job that has made a model.")

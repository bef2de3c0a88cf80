"""Verdict on a retrained model, and the outcome of its retraining."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from training.data.manifest import Split

Decision = Literal["promoted", "waiting", "rejected", "unchanged"]


class _Kept(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelVerdict(_Kept):
    """Verdict on a new model: its metric and that of the active one, on held-out images.

    Attributes:
        metric: Name of the metric, in percent or a sum of percents.
        before: Metric of the active model.
        after: Metric of the new model.
        held_out: Held-out split.
        images: Number of its images with texts, or with labels if the metric is of labels.
        passed: Whether the model is a new one, and its metric rose by the required gain.
    """

    metric: str
    before: float
    after: float
    held_out: Split
    images: int
    passed: bool


class StoredVerdict(_Kept):
    """A verdict, and the digest of the model that was active then."""

    against: str
    judgement: ModelVerdict


class Outcome(_Kept):
    """Outcome of a retraining.

    Attributes:
        verdict: promoted: the new model is searched with; waiting: a person may activate the generation;
            rejected: it did not pass, and nothing was embedded with it; unchanged: no epoch was better than
            the model that the retraining went on from, so there is no new one.
        collection: Name of the collection.
        generation: Generation by the new model; None if it was rejected, or there is none.
        bundle: Digest of the new model; None if there is none.
        judgement: Verdict on the new model; None if the collection has no held-out data.
    """

    verdict: Decision
    collection: str
    generation: int | None
    bundle: str | None
    judgement: ModelVerdict | None

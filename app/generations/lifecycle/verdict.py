"""Verdict on a retrained model, and the outcome of its retraining."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from training.common.manifest import Split

Verdict = Literal["better", "not better", "not enough to judge"]
Decision = Literal["promoted", "waiting", "rejected", "unchanged"]


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

"""The tasks of GLUE: where their texts and labels stand, and what they are measured by (Wang et al. 2018)."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from training.evaluation.auc import mean_ranks

Numbers = NDArray[np.float64]
Labels = NDArray[np.int64]
MetricName = Literal["accuracy", "f1", "matthews", "pearson", "spearman"]


@dataclass(frozen=True, slots=True)
class GlueTask:
    """One task; its files are `train.tsv` and those of `dev`.

    Attributes:
        first: Column of the text, or of the first of two.
        second: Column of the second text; None: the task has one.
        label: Column of the label.
        labels: Values of that column, one a class; of two, the second is the positive one. Empty: regression.
        metrics: Metrics of the task; the first one, on held-out training examples, chooses the checkpoint.
        columns: Columns of files without a header.
        dev: Files whose metrics are reported, without `.tsv`.
    """

    first: str
    second: str | None
    label: str
    labels: tuple[str, ...]
    metrics: tuple[MetricName, ...] = ("accuracy",)
    columns: tuple[str, ...] | None = None
    dev: tuple[str, ...] = ("dev",)

    @property
    def outputs(self) -> int:
        """Number of outputs: classes, or 1 for regression."""
        return max(1, len(self.labels))

    @property
    def chosen_by(self) -> str:
        """The figure that decides which checkpoint is best."""
        return self.metrics[0]


_ENTAILMENT = ("not_entailment", "entailment")

GLUE: Mapping[str, GlueTask] = MappingProxyType(
    {
        "cola": GlueTask(
            "sentence",
            None,
            "label",
            ("0", "1"),
            ("matthews", "accuracy"),
            columns=("source", "label", "mark", "sentence"),
        ),
        "sst-2": GlueTask("sentence", None, "label", ("0", "1")),
        "mrpc": GlueTask("#1 String", "#2 String", "Quality", ("0", "1"), ("f1", "accuracy")),
        "qqp": GlueTask("question1", "question2", "is_duplicate", ("0", "1"), ("accuracy", "f1")),
        "qnli": GlueTask("question", "sentence", "label", _ENTAILMENT),
        "mnli": GlueTask(
            "sentence1",
            "sentence2",
            "gold_label",
            ("contradiction", "entailment", "neutral"),
            dev=("dev_matched", "dev_mismatched"),
        ),
        "rte": GlueTask("sentence1", "sentence2", "label", _ENTAILMENT),
        "wnli": GlueTask("sentence1", "sentence2", "label", ("0", "1")),
        "sts-b": GlueTask("sentence1", "sentence2", "score", (), ("pearson", "spearman")),
    }
)

TaskName = Literal["cola", "sst-2", "mrpc", "qqp", "qnli", "mnli", "rte", "wnli", "sts-b"]


def accuracy(predicted: Labels, actual: Labels) -> float:
    """Share of labels that are right."""
    return float((predicted == actual).mean())


def f1(predicted: Labels, actual: Labels) -> float:
    """Harmonic mean of precision and recall of label 1; 0 when it is neither predicted nor there."""
    hits = np.sum((predicted == 1) & (actual == 1))
    marked = np.sum(predicted == 1) + np.sum(actual == 1)
    return float(2 * hits / marked) if marked else 0.0


def matthews(predicted: Labels, actual: Labels) -> float:
    """Matthews' correlation of two labels, from -1 to 1; 0 when predictions or labels are all the same."""
    return pearson((predicted == 1).astype(np.float64), (actual == 1).astype(np.float64))


def pearson(predicted: Numbers, actual: Numbers) -> float:
    """Linear correlation, from -1 to 1; 0 when either does not vary."""
    left, right = predicted - predicted.mean(), actual - actual.mean()
    # Scaled, so that the squares of tiny and huge deviations are numbers.
    spread = np.abs(left).max() * np.abs(right).max()
    if not spread > 0:
        return 0.0
    left, right = left / np.abs(left).max(), right / np.abs(right).max()
    return float(np.clip(left @ right / np.sqrt((left @ left) * (right @ right)), -1, 1))


def spearman(predicted: Numbers, actual: Numbers) -> float:
    """Correlation of ranks, from -1 to 1; equal values share the mean of their ranks."""
    return pearson(mean_ranks(predicted), mean_ranks(actual))


def measure(task: GlueTask, outputs: Numbers, actual: Numbers) -> dict[str, float]:
    """The measures of a task, from -1 or 0 to 1, in its order.

    Args:
        task: Task to measure.
        outputs: (N, classes) logits, or (N, 1) scores.
        actual: (N,) numbers of classes, or scores.
    """
    return {name: _measured(name, outputs, actual) for name in task.metrics}


def _measured(name: MetricName, outputs: Numbers, actual: Numbers) -> float:
    match name:
        case "pearson":
            return pearson(outputs[:, 0], actual)
        case "spearman":
            return spearman(outputs[:, 0], actual)
        case "accuracy" | "f1" | "matthews":
            function = {"accuracy": accuracy, "f1": f1, "matthews": matthews}[name]
            return function(outputs.argmax(axis=1), actual.astype(np.int64))

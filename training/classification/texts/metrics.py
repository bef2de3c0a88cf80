"""The measures of GLUE's tasks."""

import numpy as np
from numpy.typing import NDArray

from training.classification.texts.tasks import GlueTask, MetricName
from training.evaluation.auc import mean_ranks

Numbers = NDArray[np.float64]
Labels = NDArray[np.int64]


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

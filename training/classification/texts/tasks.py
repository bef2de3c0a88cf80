"""The tasks of GLUE: where their texts and labels stand, and what they are measured by (Wang et al. 2018)."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

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

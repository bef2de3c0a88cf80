"""What RECLAIM's paper reports on the development sets of GLUE, in percent (tables 1 and 10)."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from training.classification.tasks import GLUE


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """The figures of one backbone with the usual loss, and with RECLAIM's term."""

    backbone: str
    base: tuple[float, ...]
    reclaim: tuple[float, ...]


_ROWS: Mapping[str, tuple[PublishedRow, ...]] = MappingProxyType(
    {
        "cola": (
            PublishedRow("BERT-base", (55.6,), (58.8,)),
            PublishedRow("RoBERTa-base", (61.3,), (63.8,)),
            PublishedRow("BERT-large", (62.8,), (63.8,)),
        ),
        "sst-2": (
            PublishedRow("BERT-base", (91.2,), (92.7,)),
            PublishedRow("RoBERTa-base", (94.1,), (94.4,)),
            PublishedRow("BERT-large", (94.2,), (94.4,)),
        ),
        "mrpc": (
            PublishedRow("BERT-base", (89.47, 85.29), (91.0, 87.3)),
            PublishedRow("RoBERTa-base", (91.1, 87.7), (93.0, 90.2)),
            PublishedRow("BERT-large", (91.9, 88.7), (93.0, 90.2)),
        ),
        "mnli": (
            PublishedRow("BERT-base", (83.60, 84.15), (84.14, 84.41)),
            PublishedRow("RoBERTa-base", (87.4, 87.2), (87.7, 87.6)),
            PublishedRow("BERT-large", (87.6, 87.3), (87.7, 87.6)),
        ),
        "wnli": (
            PublishedRow("BERT-base", (50.7,), (56.33,)),
            PublishedRow("RoBERTa-base", (53.6,), (56.33,)),
            PublishedRow("BERT-large", (55.6,), (56.33,)),
        ),
        "sts-b": (
            PublishedRow("BERT-base", (89.2, 88.8), (90.1, 89.5)),
            PublishedRow("RoBERTa-base", (90.5, 90.3), (90.7, 90.6)),
            PublishedRow("BERT-large", (90.5, 90.4), (90.7, 90.6)),
        ),
        "rte": (
            PublishedRow("BERT-base", (60.0,), (65.0,)),
            PublishedRow("RoBERTa-base", (70.8,), (74.1,)),
            PublishedRow("BERT-large", (72.3,), (74.1,)),
        ),
        "qqp": (
            PublishedRow("BERT-base", (90.2, 87.0), (91.0, 87.8)),
            PublishedRow("RoBERTa-base", (91.3, 88.4), (91.7, 88.9)),
            PublishedRow("BERT-large", (91.3, 88.4), (91.7, 88.9)),
        ),
        "qnli": (
            PublishedRow("BERT-base", (90.2,), (90.4,)),
            PublishedRow("RoBERTa-base", (92.4,), (92.9,)),
            PublishedRow("BERT-large", (92.5,), (92.9,)),
        ),
    }
)


def published(task: str) -> tuple[tuple[str, ...], tuple[PublishedRow, ...]]:
    """The names of a task's figures in their order, as `recoquest classify` names them, and the rows.

    The paper does not say which of the two figures of MRPC and QQP is which: the names follow the values that
    BERT is known to reach.
    """
    described = GLUE[task]
    if len(described.dev) > 1:
        names = tuple(f"{name}/{metric}" for name in described.dev for metric in described.metrics)
    else:
        names = tuple(described.metrics[: len(_ROWS[task][0].base)])
    return names, _ROWS[task]

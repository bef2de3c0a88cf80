"""Text classification on GLUE (Wang et al. 2018), with RECLAIM's term if a recipe has it."""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from training.common.errors import DataError, RecipeError
from training.common.frozen import Frozen
from training.common.rejections import Rejections, Usable
from training.evaluation.retrieval import mean_ranks
from training.models.config import TextTowerConfig
from training.models.learned_tokenizer import build_tokenizer
from training.models.pooling import masked_mean
from training.models.text_input import Tokenizer
from training.models.text_towers import TextTower, build_text_tower
from training.models.transformers_backbones import TransformersTextBackbone
from training.papers.items import ItemLoader, train_and_validation
from training.papers.reclaim import ReclaimTermSettings
from training.papers.reclaim_task import ReclaimTask
from training.recipes.schema import ScheduleConfig
from training.recipes.tasks import ChoosingDataConfig, TaskRecipe
from training.trainer.module_task import ModuleTask, TaskResult
from training.trainer.opening import RunOptions, open_run
from training.trainer.run_state.checkpoint import fingerprint

# The tasks: their columns and metrics.

TaskName = Literal["cola", "sst-2", "mrpc", "qqp", "qnli", "mnli", "rte", "wnli", "sts-b"]
Numbers = NDArray[np.number[Any]]


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
    metrics: tuple[str, ...] = ("accuracy",)
    columns: tuple[str, ...] | None = None
    dev: tuple[str, ...] = ("dev",)


_SENTENCES = "sentence1", "sentence2"
_ENTAILMENT = "not_entailment", "entailment"
_MNLI_LABELS = "contradiction", "entailment", "neutral"
_COLA = "source", "label", "mark", "sentence"
GLUE: Final[Mapping[str, GlueTask]] = {
    "cola": GlueTask("sentence", None, "label", ("0", "1"), ("matthews", "accuracy"), columns=_COLA),
    "sst-2": GlueTask("sentence", None, "label", ("0", "1")),
    "mrpc": GlueTask("#1 String", "#2 String", "Quality", ("0", "1"), ("f1", "accuracy")),
    "qqp": GlueTask("question1", "question2", "is_duplicate", ("0", "1"), ("accuracy", "f1")),
    "qnli": GlueTask("question", "sentence", "label", _ENTAILMENT),
    "mnli": GlueTask(*_SENTENCES, "gold_label", _MNLI_LABELS, dev=("dev_matched", "dev_mismatched")),
    "rte": GlueTask(*_SENTENCES, "label", _ENTAILMENT),
    "wnli": GlueTask(*_SENTENCES, "label", ("0", "1")),
    "sts-b": GlueTask(*_SENTENCES, "score", (), ("pearson", "spearman")),
}


def accuracy(predicted: Numbers, actual: Numbers) -> float:
    """Share of labels that are right."""
    return float((predicted == actual).mean())


def f1(predicted: Numbers, actual: Numbers) -> float:
    """Harmonic mean of precision and recall of label 1; 0 if no row has it and none is predicted to."""
    hits = np.sum((predicted == 1) & (actual == 1))
    marked = np.sum(predicted == 1) + np.sum(actual == 1)
    return float(2 * hits / marked) if marked else 0.0


def pearson(predicted: Numbers, actual: Numbers) -> float:
    """Linear correlation, from -1 to 1; 0 if either does not vary."""
    left, right = predicted - predicted.mean(), actual - actual.mean()
    spread = np.sqrt((left @ left) * (right @ right))
    return float(np.clip(left @ right / spread, -1, 1)) if spread > 0 else 0.0


def matthews(predicted: Numbers, actual: Numbers) -> float:
    """Matthews' correlation of two labels, from -1 to 1; 0 if either does not vary."""
    return pearson((predicted == 1).astype(np.float64), (actual == 1).astype(np.float64))


def spearman(predicted: Numbers, actual: Numbers) -> float:
    """Correlation of ranks, from -1 to 1; equal values share the mean of their ranks."""
    return pearson(mean_ranks(predicted), mean_ranks(actual))


def measure(task: GlueTask, outputs: Numbers, actual: Numbers) -> dict[str, float]:
    """The metrics of a task, in its order.

    Args:
        task: Task to measure.
        outputs: (N, classes) logits, or (N, 1) scores.
        actual: (N,) class numbers, or scores.
    """
    predicted = outputs.argmax(axis=1) if task.labels else outputs[:, 0]
    metrics = {"accuracy": accuracy, "f1": f1, "matthews": matthews, "pearson": pearson, "spearman": spearman}
    return {name: metrics[name](predicted, actual) for name in task.metrics}


class TextClassifierConfig(Frozen):
    """A text backbone and the classifier behind it."""

    architecture: Literal["bert", "distilbert", "roberta", "small_transformer"]
    pretrained: str | None = Field(
        default=None, description="Local folder or hub name of pretrained weights; None: random weights."
    )
    options: dict[str, Any] = Field(
        default_factory=dict, description="Settings of the architecture when it is built with random weights."
    )
    pooling: Literal["cls", "mean", "max"] = Field(
        default="cls", description="Pooling of token states into the sentence's feature."
    )
    frozen_layers: Annotated[int, Field(ge=0)] | Literal["all"] = 0
    vocabulary_size: int = Field(
        default=8192,
        ge=300,
        description="Vocabulary size of the tokenizer learned from the training texts.",
    )
    max_tokens: int = Field(default=128, gt=4, description="Special tokens included; longer texts are cut.")
    dropout: float = Field(default=0.1, ge=0, lt=1, description="Dropout rate of the classifier.")

    def tower(self) -> TextTowerConfig:
        """The settings of the backbone and its pooling."""
        return TextTowerConfig.model_validate(self.model_dump(exclude={"max_tokens", "dropout"}))


class TextRecipe(TaskRecipe):
    """A named, complete description of a run of text classification."""

    task: TaskName
    model: TextClassifierConfig
    data: ChoosingDataConfig = ChoosingDataConfig()
    reclaim: ReclaimTermSettings | None = Field(
        default=None, description="RECLAIM's term on the mean word embedding and the sentence's feature."
    )
    schedule: ScheduleConfig = ScheduleConfig(name="linear")


# Reading.
@dataclass(frozen=True, slots=True)
class Example:
    """A text, or two, and its label: the number of a class, or a score."""

    first: str
    second: str | None
    label: float


def read_glue(folder: Path, name: str, task: GlueTask, *, max_rejected: float = 1.0) -> Usable[Example]:
    """Read a tab-separated table of a task as GLUE's own archive has it.

    The tables have no quotes: every tab ends a value, and only a line feed ends a line.

    Raises:
        DataError: The file cannot be read, has other columns, too many broken lines, or no example.
    """
    path = folder / f"{name}.tsv"
    try:
        content = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from error
    lines = content.split(b"\n")
    if not lines[-1].strip():
        lines.pop()
    columns, header = task.columns, 0
    if columns is None:
        first = lines[0] if lines else b""
        columns, header = tuple(first.decode("utf-8", errors="replace").rstrip("\r").split("\t")), 1
        for column in (task.first, task.second, task.label):
            if column is not None and column not in columns:
                raise DataError(
                    f"{path} has no column {column!r}: is it a file of this task, with its header?"
                )
    rejections = Rejections(len(lines[header:]), max_rejected, source=str(path))
    examples = []
    for number, line in enumerate(lines[header:], start=header + 1):
        example = _example(line, columns, task)
        if isinstance(example, Example):
            examples.append(example)
        else:
            rejections.add(number, example)
    if not examples:
        raise DataError(f"{path} has no line that can be used.")
    return Usable(tuple(examples), rejections)


def _example(line: bytes, columns: Sequence[str], task: GlueTask) -> Example | str:
    """Return the example of a line, or the reason why it can't be used."""
    try:
        values = line.decode("utf-8").rstrip("\r").split("\t")
    except UnicodeDecodeError:
        return "it is not UTF-8"
    if len(values) != len(columns):
        return f"it has {len(values)} values, not {len(columns)}"
    row = dict(zip(columns, values, strict=True))
    for name in (task.first, task.second):
        if name is not None and not row[name].strip():
            return f"{name} is empty"
    text, score = row[task.label], math.nan
    if task.labels and text not in task.labels:
        return f"the label {text[:40]!r} is none of {', '.join(task.labels)}"
    with suppress(ValueError):
        score = float(task.labels.index(text) if task.labels else text)
    if not math.isfinite(score):
        return f"the score {text[:40]!r} is not a number"
    return Example(row[task.first], None if task.second is None else row[task.second], score)


# Batches.
class Batch(NamedTuple):
    """Rows of token ids, padded to the longest.

    Attributes:
        input_ids: (B, T) int64.
        attention_mask: (B, T) int64, 0 at padding.
        segments: (B, T) int64, 1 in the second text and the special token behind it.
        labels: (B,) float, class numbers or scores.
        items: (B,) int64, numbers of the examples.
    """

    input_ids: Tensor
    attention_mask: Tensor
    segments: Tensor
    labels: Tensor
    items: Tensor

    def to(self, device: torch.device) -> "Batch":
        """The batch on a device."""
        return Batch(*(part.to(device, non_blocking=True) for part in self))


@dataclass(kw_only=True)
class ExampleLoader(ItemLoader[Example, Batch]):
    """Batches of examples: start, first text, end, second text, end.

    The longer text is cut first, at its end.

    Attributes:
        tokenizer: Tokenizer of the backbone.
        max_tokens: Longest row, special tokens included.
        separators: Special tokens between two texts: 1, or 2 as in RoBERTa.
    """

    tokenizer: Tokenizer
    max_tokens: int
    separators: int = 1

    def batch(self, indices: Sequence[int]) -> Batch:
        """The examples at these indices."""
        chosen = [self.items[index] for index in indices]
        firsts = self._tokens([example.first for example in chosen])
        seconds = iter(self._tokens([e.second for e in chosen if e.second is not None]))
        rows = [
            self._row(first, None if example.second is None else next(seconds))
            for first, example in zip(firsts, chosen, strict=True)
        ]
        shape = len(rows), max(len(ids) for ids, _ in rows)
        input_ids = torch.full(shape, self.tokenizer.pad_id)
        mask, segments = torch.zeros((2, *shape), dtype=torch.int64)
        for index, (ids, second) in enumerate(rows):
            input_ids[index, : len(ids)] = torch.tensor(ids)
            segments[index, len(ids) - second : len(ids)] = 1
            mask[index, : len(ids)] = 1
        labels = torch.tensor([example.label for example in chosen], dtype=torch.float32)
        return Batch(input_ids, mask, segments, labels, torch.tensor(indices))

    def length(self, index: int) -> int:
        """Characters of an example."""
        example = self.items[index]
        return len(example.first) + len(example.second or "")

    def _tokens(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text without special tokens."""
        return [
            [token for token, special in zip(one.ids, one.special_tokens_mask, strict=True) if not special]
            for one in self.tokenizer.encode(texts)
        ]

    def _row(self, first: list[int], second: list[int] | None) -> tuple[list[int], int]:
        """The ids of a row, and how many of them belong to the second text."""
        start = [] if self.tokenizer.cls_id is None else [self.tokenizer.cls_id]
        end = [] if self.tokenizer.eos_id is None else [self.tokenizer.eos_id]
        room = self.max_tokens - len(start) - len(end)
        if second is None:
            return [*start, *first[:room], *end] or [self.tokenizer.pad_id], 0
        between = end * self.separators
        room -= len(between)
        half = room // 2
        keep_second = min(len(second), max(half, room - len(first)))
        right = [*second[:keep_second], *end]
        return [*start, *first[: room - keep_second], *between, *right] or [self.tokenizer.pad_id], len(right)


# The model.
class ClassifierOutput(NamedTuple):
    """Output of a classifier for B rows.

    Attributes:
        logits: (B, classes), or (B, 1) scores.
        words: (B, C), the mean word embedding of the real tokens: RECLAIM's v.
        sentence: (B, C), the pooled feature: RECLAIM's u.
    """

    logits: Tensor
    words: Tensor
    sentence: Tensor


class TextClassifier(nn.Module):
    """A text tower, and a dense layer with tanh before the last one, with dropout around it.

    BERT's own dense layer, which was trained to tell following sentences, is not used: all backbones are
    treated alike.

    `outputs` are classes, or 1 for regression; `load` loads the pretrained weights that the settings name.

    Raises:
        RecipeError: Settings and backbone do not fit.
    """

    def __init__(
        self, config: TextClassifierConfig, tokenizer: Tokenizer, outputs: int, *, load: bool
    ) -> None:
        super().__init__()
        self.tower = build_text_tower(config.tower(), tokenizer, load_pretrained=load)
        if config.max_tokens > self.tower.backbone.max_tokens:
            raise RecipeError(
                f"max_tokens is {config.max_tokens}, but {config.architecture} reads only "
                f"{self.tower.backbone.max_tokens}: set model.max_tokens to that or less."
            )
        width = self.tower.width
        self.head = nn.Sequential(
            nn.Dropout(config.dropout),
            nn.Linear(width, width),
            nn.Tanh(),
            nn.Dropout(config.dropout),
            nn.Linear(width, outputs),
        )
        self._embedded: Tensor | None = None
        self.tower.backbone.stem()[0].register_forward_hook(self._keep_embedded)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, segments: Tensor) -> ClassifierOutput:
        """Classify rows; the arguments are those of `Batch`."""
        mask = attention_mask.bool()
        backbone, pooling = self.tower.backbone, self.tower.pooling
        if isinstance(backbone, TransformersTextBackbone):
            features = backbone.forward_pairs(input_ids, attention_mask, segments)
        else:
            features = backbone(input_ids, attention_mask)
        embedded, self._embedded = self._embedded, None
        assert embedded is not None
        assert pooling is not None
        sentence, _ = pooling(features.local, mask)
        return ClassifierOutput(self.head(sentence), masked_mean(embedded, mask), sentence)

    def _keep_embedded(self, _module: nn.Module, _inputs: Any, output: Tensor) -> None:
        self._embedded = output


class TextTask(ReclaimTask):
    """Cross entropy of the classes or squared error of the score, and RECLAIM's term with its weight."""

    def __init__(
        self,
        classifier: TextClassifier,
        *,
        regression: bool,
        reclaim: ReclaimTermSettings | None,
        instances: int,
    ) -> None:
        super().__init__()
        self.classifier = classifier
        self.regression = regression
        self.set_term(reclaim, (classifier.tower.width, classifier.tower.width), instances)

    @property
    def tower(self) -> TextTower:
        """Text tower of the classifier."""
        return self.classifier.tower

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, segments: Tensor, labels: Tensor, items: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss of a training batch and its terms; the arguments are those of `Batch`."""
        output = self.classifier(input_ids, attention_mask, segments)
        with torch.autocast(labels.device.type, enabled=False):
            logits = output.logits.float()
            if self.regression:
                task = mse_loss(logits.squeeze(1), labels)
            else:
                task = cross_entropy(logits, labels.long())
        return self.with_term(task, {"task": task.detach()}, output.sentence, output.words, items)


# A run.
def classify_texts(recipe: TextRecipe, data: Path, options: RunOptions) -> TaskResult[dict[str, float]]:
    """Fine-tune a text classifier on a GLUE task and measure it once on the task's development sets.

    Held-out training examples choose the checkpoint; those with the same first text stay together. The
    global random generators are seeded.
    `data` has the task's `train.tsv` and development files.

    Raises:
        RecoquestError: Something that the user can mend; the message says what.
    """
    with open_run(recipe, options) as run:
        task, config = GLUE[recipe.task], recipe.model
        tables = {
            name: read_glue(data, name, task, max_rejected=recipe.data.max_rejected)
            for name in ("train", *task.dev)
        }
        rejected = len(run.report(*(table.rejections for table in tables.values())))
        train, validation = train_and_validation(
            tables["train"].items, lambda example: example.first, recipe.data
        )
        parts = {name: tables[name].items for name in task.dev}
        texts = (text for example in train for text in (example.first, example.second) if text is not None)
        tokenizer = build_tokenizer(config.tower(), texts)
        classifier = TextClassifier(config, tokenizer, max(1, len(task.labels)), load=run.checkpoint is None)
        loader = partial(
            ExampleLoader,
            batch_size=recipe.train.batch_size,
            tokenizer=tokenizer,
            max_tokens=config.max_tokens,
            separators=2 if config.architecture == "roberta" else 1,
        )
        measured = partial(_measure, task, classifier, run.fabric, loader)
        batches = loader(train, seed=recipe.train.seed, processes=run.processes)
        run_task = ModuleTask(
            run=run,
            recipe=recipe,
            module=TextTask(
                classifier, regression=not task.labels, reclaim=recipe.reclaim, instances=len(train)
            ),
            batches=batches,
            inputs=lambda batch, _: batch.to(run.fabric.device),
            validate=lambda: measured({"validation": validation}),
            chosen_by=task.metrics[0],
            fingerprint=fingerprint((*train, *validation)),
            largest=batches.largest,
        )
        loop = run_task.fit()
        metrics = run_task.measured(lambda: measured(parts))
        examples = {"train": train, "validation": validation, **parts}
        counts = {"examples": {name: len(part) for name, part in examples.items()}}
        return run_task.finish(loop, metrics, {"task": recipe.task, "metrics": metrics}, counts, rejected)


def _measure(
    task: GlueTask,
    classifier: TextClassifier,
    fabric: Fabric,
    loader: Callable[[Sequence[Example]], ExampleLoader],
    parts: Mapping[str, Sequence[Example]],
) -> dict[str, float]:
    """The metrics of examples; those of several parts carry their names."""
    figures: dict[str, float] = {}
    for name, examples in parts.items():
        outputs, labels = [], []
        for batch in loader(examples).in_order():
            with torch.inference_mode(), fabric.autocast():
                outputs.append(classifier(*batch.to(fabric.device)[:3]).logits.float().cpu())
            labels.append(batch.labels)
        measured = measure(task, torch.cat(outputs).double().numpy(), torch.cat(labels).double().numpy())
        prefix = f"{name}/" if len(parts) > 1 else ""
        figures |= {prefix + metric: value for metric, value in measured.items()}
    return figures


# What RECLAIM's paper reports.

_BACKBONES = "BERT-base", "RoBERTa-base", "BERT-large"
# Figures of each backbone without and with RECLAIM's term, in percent (tables 1 and 10).
_ROWS: Final[Mapping[str, Sequence[tuple[Sequence[float], Sequence[float]]]]] = {
    "cola": (([55.6], [58.8]), ([61.3], [63.8]), ([62.8], [63.8])),
    "sst-2": (([91.2], [92.7]), ([94.1], [94.4]), ([94.2], [94.4])),
    "mrpc": (([89.47, 85.29], [91.0, 87.3]), ([91.1, 87.7], [93.0, 90.2]), ([91.9, 88.7], [93.0, 90.2])),
    "mnli": (([83.60, 84.15], [84.14, 84.41]), ([87.4, 87.2], [87.7, 87.6]), ([87.6, 87.3], [87.7, 87.6])),
    "wnli": (([50.7], [56.33]), ([53.6], [56.33]), ([55.6], [56.33])),
    "sts-b": (([89.2, 88.8], [90.1, 89.5]), ([90.5, 90.3], [90.7, 90.6]), ([90.5, 90.4], [90.7, 90.6])),
    "rte": (([60.0], [65.0]), ([70.8], [74.1]), ([72.3], [74.1])),
    "qqp": (([90.2, 87.0], [91.0, 87.8]), ([91.3, 88.4], [91.7, 88.9]), ([91.3, 88.4], [91.7, 88.9])),
    "qnli": (([90.2], [90.4]), ([92.4], [92.9]), ([92.5], [92.9])),
}
# Figures of BERT-base on shares of the training lines (tables 2 and 6): for each metric, a row without and a
# row with the term. The paper has MRPC's accuracy first: at 1 % its classifier always says no.
_SHARES = 0.01, 0.05, 0.1, 0.2, 0.3, 0.5
_SHARE_ROWS: Final[Mapping[str, Sequence[tuple[Sequence[float], Sequence[float]]]]] = {
    "cola": (([3.25, 16.01, 33.99, 40.99, 45.82, 50.64], [15.11, 30.78, 36.80, 43.74, 47.23, 53.64]),),
    "sst-2": (([68.53, 89.15, 89.80, 90.32, 91.25, 91.80], [83.28, 89.25, 89.90, 90.41, 91.79, 91.92]),),
    "mrpc": (
        ([0.00, 81.22, 80.07, 80.47, 83.65, 88.95], [0.00, 81.22, 80.38, 80.80, 86.46, 87.65]),
        ([31.62, 68.38, 69.40, 71.85, 75.65, 84.07], [31.62, 68.38, 70.59, 72.88, 79.82, 81.92]),
    ),
    "mnli": (([48.40, 73.67, 76.46, 79.56, 80.56, 81.99], [54.22, 73.89, 77.07, 79.63, 80.65, 82.59]),),
    "sts-b": (
        ([56.57, 56.66, 74.64, 83.20, 85.22, 87.34], [56.78, 64.11, 79.34, 83.48, 85.33, 87.73]),
        ([43.87, 52.27, 74.47, 83.36, 85.41, 87.73], [53.42, 62.09, 79.36, 83.28, 85.60, 87.95]),
    ),
    "qqp": (
        ([75.43, 82.98, 84.65, 86.76, 87.82, 89.19], [73.56, 82.57, 84.91, 87.23, 88.33, 89.59]),
        ([70.95, 78.16, 79.09, 81.90, 83.77, 85.51], [70.33, 78.45, 80.14, 83.22, 84.49, 85.94]),
    ),
    "qnli": (([72.69, 83.75, 85.83, 87.82, 88.93, 89.96], [72.52, 83.96, 85.44, 88.03, 88.67, 90.02]),),
}


def published(recipe: TextRecipe) -> dict[str, dict[str, float]]:
    """The paper's figures for a recipe's task and share, by row and metric as a run names it.

    There are none where the paper has none for the share or the task, of a tower from random weights, and
    where the term is set as in an ablation.

    The paper does not say which of the two figures of MRPC and QQP is which: the names follow the values that
    BERT is known to reach. It has one figure for MNLI's shares and does not say of which set: it is taken for
    that of the matched one.
    """
    task, share = GLUE[recipe.task], recipe.data.share
    term = ReclaimTermSettings(neighbours=100 if share == 1 else 10)
    if recipe.model.pretrained is None or recipe.reclaim not in (None, term):
        return {}
    rows: dict[str, Sequence[float]] = {}
    if share == 1:
        for backbone, (base, reclaim) in zip(_BACKBONES, _ROWS[recipe.task], strict=True):
            rows |= {backbone: base, f"{backbone} + RECLAIM": reclaim}
    elif share in _SHARES and recipe.task in _SHARE_ROWS:
        column, metrics = _SHARES.index(share), _SHARE_ROWS[recipe.task]
        rows = {
            name: [metric[model][column] for metric in metrics]
            for model, name in enumerate(("BERT-base", "BERT-base + RECLAIM"))
        }
    names = task.metrics if len(task.dev) == 1 else [f"{name}/{task.metrics[0]}" for name in task.dev]
    return {row: dict(zip(names, figures, strict=False)) for row, figures in rows.items()}

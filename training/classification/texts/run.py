"""One run of text classification, from a recipe and the folder of a GLUE task to its results."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from lightning_fabric import Fabric
from torch import Tensor

from training.classification.texts.config import TextRecipe
from training.classification.texts.glue import Example, read_glue
from training.classification.texts.model import TextClassifier, TextTask
from training.classification.texts.tasks import GLUE, GlueTask, measure
from training.classification.texts.text_pairs import PairTokenizer, PairTokens
from training.models.learned_tokenizer import build_tokenizer
from training.tasks.held_out import train_and_validation
from training.tasks.loader import ItemLoader
from training.tasks.opening import RunOptions, TaskResult, open_run
from training.tasks.problem import TaskProblem


@dataclass(frozen=True, slots=True)
class ExampleBatch:
    """Rows, their labels (B,) float, and the numbers (B,) of their examples."""

    tokens: PairTokens
    labels: Tensor
    items: Tensor

    def tensors(self, device: torch.device) -> tuple[Tensor, ...]:
        """Ids, mask, segments, labels and items on a device."""
        tokens = self.tokens
        parts = (tokens.input_ids, tokens.attention_mask, tokens.segments, self.labels, self.items)
        return tuple(part.to(device, non_blocking=True) for part in parts)


def classify_texts(recipe: TextRecipe, data: Path, options: RunOptions) -> TaskResult[dict[str, float]]:
    """Fine-tune a text classifier on a GLUE task and measure it once on the task's development sets.

    Held-out training examples choose the checkpoint; those with the same first text stay together. The
    global random generators are seeded.

    Args:
        recipe: Settings of the model and its training.
        data: Folder of the task with `train.tsv` and its development files.
        options: Folder, device and output of the run.

    Raises:
        RecoquestError: Something that the user can mend; the message says what.
    """
    with open_run(recipe, options) as run:
        task = GLUE[recipe.task]
        tables = {
            name: read_glue(data, name, task, max_rejected=recipe.data.max_rejected)
            for name in ("train", *task.dev)
        }
        rejected = run.report(*(table.rejections for table in tables.values()))
        train, chosen = train_and_validation(
            tables["train"].items, lambda example: example.first, recipe.data
        )
        parts = {name: tables[name].items for name in task.dev}
        tokenizer = build_tokenizer(recipe.model.tower(), _texts(train))
        separators = 2 if recipe.model.architecture == "roberta" else 1
        rows = PairTokenizer(tokenizer, recipe.model.max_tokens, separators=separators)
        classifier = TextClassifier(recipe.model, tokenizer, task.outputs, load=run.checkpoint is None)
        loader = partial(ExampleLoader, batch_size=recipe.train.batch_size, tokenizer=rows)
        measured = partial(_measure, task, classifier, run.fabric, loader)
        batches = loader(train, seed=recipe.train.seed, processes=run.processes)
        problem = TaskProblem(
            module=TextTask(
                classifier, regression=not task.labels, reclaim=recipe.reclaim, instances=len(train)
            ),
            batches=batches,
            inputs=lambda batch, _: batch.tensors(run.fabric.device),
            validate=lambda: measured({"validation": chosen}),
            chosen_by=task.chosen_by,
            fingerprint=fingerprint((*train, *chosen)),
            fabric=run.fabric,
            processes=run.processes,
            largest=batches.largest,
        )
        loop = run.fit(problem)
        metrics = problem.measured(lambda: measured(parts))
        examples = {"train": len(train), "validation": len(chosen)}
        examples |= {name: len(part) for name, part in parts.items()}
        figures = {"task": recipe.task, "metrics": metrics}
        return run.finish(loop, metrics, figures, {"examples": examples}, rejected)


def _measure(
    task: GlueTask,
    classifier: TextClassifier,
    fabric: Fabric,
    loader: "Callable[[Sequence[Example]], ExampleLoader]",
    parts: Mapping[str, Sequence[Example]],
) -> dict[str, float]:
    """The figures of examples, in evaluation mode; those of several parts carry their names."""
    figures: dict[str, float] = {}
    for name, examples in parts.items():
        outputs, labels = [], []
        for batch in loader(examples).in_order():
            with torch.inference_mode(), fabric.autocast():
                outputs.append(classifier(batch.tokens.to(fabric.device)).logits.float().cpu())
            labels.append(batch.labels)
        found = measure(task, torch.cat(outputs).double().numpy(), torch.cat(labels).double().numpy())
        prefix = f"{name}/" if len(parts) > 1 else ""
        figures |= {prefix + metric: value for metric, value in found.items()}
    return figures


def _texts(examples: Sequence[Example]) -> Iterator[str]:
    for example in examples:
        yield example.first
        if example.second is not None:
            yield example.second


def fingerprint(examples: Sequence[Example]) -> str:
    """SHA-256 over texts and labels in their order."""
    digest = hashlib.sha256()
    for example in examples:
        digest.update(json.dumps([example.first, example.second, example.label]).encode())
    return digest.hexdigest()


@dataclass(kw_only=True)
class ExampleLoader(ItemLoader[Example, ExampleBatch]):
    """Batches of examples, as rows of a tokenizer."""

    tokenizer: PairTokenizer

    def batch(self, places: Sequence[int]) -> ExampleBatch:
        """The rows of the examples at these places."""
        chosen = [self.items[place] for place in places]
        labels = torch.tensor([example.label for example in chosen], dtype=torch.float32)
        return ExampleBatch(self.tokenizer(chosen), labels, torch.tensor(places))

    def length(self, place: int) -> int:
        """Characters of an example."""
        example = self.items[place]
        return len(example.first) + len(example.second or "")

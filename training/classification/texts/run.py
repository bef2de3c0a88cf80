"""One run of text classification, from a recipe and the folder of a GLUE task to its results."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from lightning_fabric import Fabric
from torch import Tensor

from training.classification.texts.batches import ExampleBatch, ExampleLoader, fingerprint
from training.classification.texts.config import TextRecipe
from training.classification.texts.glue import Example, Table, read_glue
from training.classification.texts.metrics import measure
from training.classification.texts.model import TextClassifier
from training.classification.texts.task import TextTask
from training.classification.texts.tasks import GLUE
from training.classification.texts.text_pairs import PairTokenizer, PairTokens
from training.models.texts.tokenizer import build_tokenizer
from training.tasks.loop import Problem
from training.tasks.opening import OpenRun, RunOptions, open_run
from training.tasks.rejected import report
from training.tasks.share import kept_share


@dataclass(frozen=True, slots=True)
class TextResult:
    """Result of a finished run.

    Attributes:
        metrics: Metrics of the best checkpoint on the development sets.
        checkpoint: Path of the best checkpoint.
        rejected: Number of lines left out.
    """

    metrics: dict[str, float]
    checkpoint: Path
    rejected: int


def classify_texts(recipe: TextRecipe, data: Path, options: RunOptions) -> TextResult:
    """Fine-tune a text classifier on a GLUE task and measure it on the task's development sets.

    The global random generators are seeded.

    Args:
        recipe: Settings of the model and its training.
        data: Folder of the task with `train.tsv` and its development files.
        options: Folder, device and output of the run.

    Raises:
        RecoquestError: Something that the user can mend; the message says what.
    """
    run: OpenRun[ExampleBatch] = open_run(recipe, options)
    names = ("train", *GLUE[recipe.task].dev)
    tables = {
        name: read_glue(data, name, GLUE[recipe.task], max_rejected=recipe.data.max_rejected)
        for name in names
    }
    rejected = report(*(table.rejections for table in tables.values()))
    train = kept_share(tables["train"].examples, recipe.data)
    problem = _problem(recipe, train, tables, run.fabric, load_pretrained=run.checkpoint is None)
    loop = run.fit(problem)
    examples = {name: len(table.examples) for name, table in tables.items()}
    run.folder.write_results(
        {
            "recipe": recipe.name,
            "task": recipe.task,
            "metrics": loop.metrics,
            "steps": loop.position.step,
            "examples": {**examples, "train": len(train)},
            "rejected": rejected,
        }
    )
    return TextResult(loop.metrics, run.folder.best, rejected)


@dataclass(frozen=True)
class _DevelopmentSets:
    """Measures a classifier on each of them by its name, the one that chooses first."""

    recipe: TextRecipe
    fabric: Fabric
    classifier: TextClassifier
    loaders: Mapping[str, ExampleLoader]

    def measure(self) -> dict[str, float]:
        """The figures of the development sets; those of several carry their names."""
        figures: dict[str, float] = {}
        for name, loader in self.loaders.items():
            outputs, labels = [], []
            for batch in loader.in_order():
                outputs.append(self._outputs(batch.tokens))
                labels.append(batch.labels)
            task = GLUE[self.recipe.task]
            found = measure(task, torch.cat(outputs).double().numpy(), torch.cat(labels).double().numpy())
            prefix = f"{name}/" if len(self.loaders) > 1 else ""
            figures |= {prefix + metric: value for metric, value in found.items()}
        return figures

    def _outputs(self, tokens: PairTokens) -> Tensor:
        with torch.inference_mode(), self.fabric.autocast():
            outputs: Tensor = self.classifier(tokens.to(self.fabric.device)).logits.float().cpu()
        return outputs


def _problem(
    recipe: TextRecipe,
    train: Sequence[Example],
    tables: Mapping[str, Table],
    fabric: Fabric,
    *,
    load_pretrained: bool,
) -> Problem[ExampleBatch]:
    task, size = GLUE[recipe.task], recipe.train.batch_size
    tokenizer = build_tokenizer(recipe.model.tower(), _texts(train))
    rows = PairTokenizer(
        tokenizer, recipe.model.max_tokens, separators=2 if recipe.model.architecture == "roberta" else 1
    )
    classifier = TextClassifier(recipe.model, tokenizer, task.outputs, load=load_pretrained)
    dev = {name: ExampleLoader(tables[name].examples, rows, size) for name in task.dev}
    return Problem(
        module=TextTask(classifier, regression=not task.labels, reclaim=recipe.reclaim, instances=len(train)),
        batches=ExampleLoader(train, rows, size, recipe.train.seed),
        inputs=lambda batch, _: batch.tensors(fabric.device),
        measure=_DevelopmentSets(recipe, fabric, classifier, dev).measure,
        chosen_by=task.chosen_by,
        fingerprint=fingerprint(train),
    )


def _texts(examples: Sequence[Example]) -> Iterator[str]:
    for example in examples:
        yield example.first
        if example.second is not None:
            yield example.second

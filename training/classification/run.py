"""One run of text classification, from a recipe and the folder of a GLUE task to its results."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch.optim import Adam, AdamW, Optimizer

from training.classification.batches import ExampleLoader, fingerprint, kept_share
from training.classification.config import ClassificationRecipe
from training.classification.glue import Example, Table, read_glue
from training.classification.loop import ClassificationLoop
from training.classification.model import TextClassifier
from training.classification.task import ClassificationTask
from training.classification.tasks import GLUE
from training.classification.text_pairs import PairTokenizer
from training.errors import RecipeError
from training.models.tokenizer import Tokenizer, build_tokenizer
from training.recipes.schema import OptimizerConfig
from training.trainer.checkpoint import Checkpoint, seed_everything
from training.trainer.devices import build_fabric, pin_threads
from training.trainer.errors import TrainingError
from training.trainer.metrics_log import MetricsLog
from training.trainer.optimisation import parameter_groups
from training.trainer.run_folder import RunFolder

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ClassificationResult:
    """What a finished run found.

    Attributes:
        metrics: Of the best checkpoint on the development sets.
        checkpoint: That checkpoint.
        rejected: How many lines of the data were left out.
    """

    metrics: dict[str, float]
    checkpoint: Path
    rejected: int


def classify(
    recipe: ClassificationRecipe,
    data: Path,
    out: Path,
    *,
    resume: bool = False,
    device: str = "auto",
    show_progress: bool = True,
) -> ClassificationResult:
    """Fine-tune a text classifier on a GLUE task and measure it on the task's development sets.

    `out` then holds `results.json`, `checkpoints/last.pt` and `best.pt`, `metrics.jsonl`, `tensorboard/` and
    the resolved `recipe.yaml`. The global random generators are seeded.

    Args:
        recipe: What to train and how.
        data: Folder of the task with `train.tsv` and its development files.
        out: Empty or new; with `resume`, the folder of a run with the same recipe and data.
        resume: Go on from the last checkpoint; on a CPU the result is bit-equal to a run that never stopped.
        device: A torch device; "auto": the GPU if there is one, else the CPU.
        show_progress: Show a bar on standard error.

    Raises:
        RecoquestError: Something that the user can mend; the message says what.
    """
    pin_threads()
    folder = RunFolder(out)
    checkpoint = None
    if resume:
        checkpoint = folder.read_checkpoint(recipe)
    else:
        folder.check_unused()
    names = ("train", *GLUE[recipe.task].dev)
    tables = {
        name: read_glue(data, name, GLUE[recipe.task], max_rejected=recipe.data.max_rejected)
        for name in names
    }
    rejected = _report(list(tables.values()))
    loop = _build_loop(recipe, folder, tables, device, load_pretrained=checkpoint is None)
    _start(loop, checkpoint)
    with MetricsLog(out, loop.position.step) as log:
        loop.run(log, show_progress=show_progress)
    examples = {name: len(table.examples) for name, table in tables.items()}
    folder.write_results(
        {
            "recipe": recipe.name,
            "task": recipe.task,
            "metrics": loop.metrics,
            "steps": loop.position.step,
            "examples": {**examples, "train": len(loop.train)},
            "rejected": rejected,
        }
    )
    return ClassificationResult(loop.metrics, folder.best, rejected)


def _build_loop(
    recipe: ClassificationRecipe,
    folder: RunFolder,
    tables: Mapping[str, Table],
    device: str,
    *,
    load_pretrained: bool,
) -> ClassificationLoop:
    fabric = build_fabric(recipe.train.precision, device)
    if fabric.world_size > 1:
        raise RecipeError("Text classification runs in one process: start it without torchrun.")
    seed_everything(recipe.train.seed)
    train = kept_share(tables["train"].examples, recipe.data)
    tokenizer = build_tokenizer(recipe.model.tower(), _texts(train))
    rows = PairTokenizer(
        tokenizer, recipe.model.max_tokens, separators=2 if recipe.model.architecture == "roberta" else 1
    )
    task = _build_task(recipe, tokenizer, len(train), load_pretrained=load_pretrained)
    optimizer = _build_optimizer(task, recipe.optimizer, fused=fabric.device.type == "cuda")
    wrapped, wrapped_optimizer = fabric.setup(task, optimizer)
    size = recipe.train.batch_size
    return ClassificationLoop(
        recipe=recipe,
        fabric=fabric,
        module=task,
        task=wrapped,
        optimizer=wrapped_optimizer,
        train=ExampleLoader(train, rows, size, recipe.train.seed),
        dev={
            name: ExampleLoader(table.examples, rows, size)
            for name, table in tables.items()
            if name != "train"
        },
        folder=folder,
        fingerprint=fingerprint(train),
    )


def _texts(examples: Sequence[Example]) -> Iterator[str]:
    for example in examples:
        yield example.first
        if example.second is not None:
            yield example.second


def _build_task(
    recipe: ClassificationRecipe, tokenizer: Tokenizer, instances: int, *, load_pretrained: bool
) -> ClassificationTask:
    task = GLUE[recipe.task]
    classifier = TextClassifier(recipe.model, tokenizer, task.outputs, load=load_pretrained)
    return ClassificationTask(
        classifier, regression=not task.labels, reclaim=recipe.reclaim, instances=instances
    )


def _build_optimizer(task: ClassificationTask, config: OptimizerConfig, *, fused: bool) -> Optimizer:
    """Adam or AdamW with the backbone at its own rate and no decay on biases, norms and scalars."""
    tower = list(task.classifier.tower.parameters())
    inside = {id(parameter) for parameter in tower}
    others = [parameter for parameter in task.parameters() if id(parameter) not in inside]
    groups = [
        *parameter_groups(
            [parameter for parameter in tower if parameter.requires_grad],
            config.tower_lr or config.lr,
            config.weight_decay,
        ),
        *parameter_groups(others, config.lr, config.weight_decay),
    ]
    kind = Adam if config.name == "adam" else AdamW
    return kind(groups, lr=config.lr, fused=fused)


def _start(loop: ClassificationLoop, checkpoint: Checkpoint | None) -> None:
    """Begin at step 0 with a first checkpoint, or where a checkpoint ends."""
    if checkpoint is None:
        loop.save()
        loop.folder.write_recipe(loop.recipe)
        return
    if checkpoint.data != loop.fingerprint:
        raise TrainingError(
            f"The training data are not those that the run in {loop.folder.path} was started with: give the "
            "same --data, or start a new run in another folder."
        )
    loop.restore(checkpoint)


def _report(tables: Sequence[Table]) -> int:
    """Say which lines were left out, and count them."""
    for table in tables:
        if table.rejections:
            shown = "; ".join(f"line {item.line}: {item.reason}" for item in table.rejections[:5])
            logger.warning("Left out %d lines of %s: %s.", len(table.rejections), table.path, shown)
    return sum(len(table.rejections) for table in tables)

"""One training run from a recipe and a data folder to a bundle."""

import logging
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from lightning_fabric import Fabric

from training.data.augmentation import Augmentation
from training.data.manifest import Manifest, Rejection, Rejections, read_manifest
from training.host import keep_freed_memory
from training.models.bundle import save_bundle
from training.models.dual_encoder import DualEncoder
from training.models.encoder import Encoder, choose_device
from training.models.preprocessing import Preprocessing
from training.objectives.base import ObjectiveContext
from training.recipes.load import dump_recipe
from training.recipes.schema import Recipe
from training.trainer.checkpoint import Checkpoint, load_checkpoint, seed_everything
from training.trainer.errors import TrainingError
from training.trainer.loop import TrainingLoop
from training.trainer.metrics_log import MetricsLog
from training.trainer.optimisation import build_optimizer
from training.trainer.run_folder import RunFolder
from training.trainer.setup import (
    PixelPreparation,
    SplitData,
    build_fabric,
    build_model,
    open_split,
    pin_threads,
    thaw_random_towers,
    usable_records,
)
from training.trainer.task import TrainingTask
from training.trainer.validation import Validation, check_selectable

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TrainResult:
    """What a finished run leaves.

    Attributes:
        bundle: Folder of the encoder with the best validation figure.
        metrics: Of that encoder on the validation split; empty without one.
        rejections: Lines and images of the data that were left out.
    """

    bundle: Path
    metrics: dict[str, float]
    rejections: tuple[Rejection, ...] = ()

    @property
    def rejected(self) -> int:
        """How many lines and images were left out."""
        return len(self.rejections)


def train(
    recipe: Recipe,
    data: Path,
    out: Path,
    *,
    resume: bool = False,
    device: str = "auto",
    show_progress: bool = True,
) -> TrainResult:
    """Train a dual encoder and write its bundle.

    `out` then holds `bundle/`, `checkpoints/last.pt` and `best.pt`, `metrics.jsonl`, `tensorboard/` and the
    resolved `recipe.yaml`. The global random generators are seeded.

    Args:
        recipe: What to train and how.
        data: Folder of a manifest.
        out: Empty or new; with `resume`, the folder of a run with the same recipe and data.
        resume: Go on from the last checkpoint; on a CPU the result is bit-equal to a run that never stopped.
        device: A torch device; "auto": the GPU if there is one, else the CPU.
        show_progress: Show bars on standard error.

    Raises:
        RecoquestError: Something that the user can mend; the message says what.
    """
    keep_freed_memory()
    pin_threads()
    recipe = thaw_random_towers(recipe)
    folder = RunFolder(out)
    checkpoint = None
    if resume:
        checkpoint = folder.read_checkpoint(recipe)
    else:
        folder.check_unused()
    fabric = build_fabric(recipe.train.precision, choose_device(device))
    seed_everything(recipe.train.seed)
    manifest = read_manifest(data, max_rejected=recipe.data.max_rejected)
    train_split = usable_records(recipe, manifest.split("train"))
    val_split = manifest.split("val")
    if val_split.records:
        check_selectable(recipe.train.select_by, val_split)
    else:
        logger.warning("There is no validation split: the bundle will hold the last weights, not the best.")
    model, preprocessing = build_model(recipe, train_split, load_pretrained=checkpoint is None)
    broken = Rejections(len(train_split.records), recipe.data.max_rejected, source=str(data))
    with ExitStack() as resources:
        pairs = open_split(
            recipe,
            train_split,
            preprocessing,
            broken,
            device=fabric.device,
            training=True,
            resources=resources,
            show_progress=show_progress,
        )
        loop = _build_loop(recipe, fabric, model, preprocessing, pairs, folder)
        loop.validation = _validation(recipe, loop, model, preprocessing, val_split, resources)
        _start(loop, folder, checkpoint)
        log = resources.enter_context(MetricsLog(out, loop.position.step))
        loop.run(log, show_progress=show_progress)
    metrics = _write_bundle(recipe, loop, folder, model, preprocessing)
    left_out = _report(manifest.rejections, broken, _unreadable(loop.validation, str(data)))
    return TrainResult(folder.bundle, metrics, left_out)


def _build_loop(
    recipe: Recipe,
    fabric: Fabric,
    model: DualEncoder,
    preprocessing: Preprocessing,
    pairs: SplitData,
    folder: RunFolder,
) -> TrainingLoop:
    context = ObjectiveContext(dim=recipe.model.dim, instances=pairs.instances)
    task = TrainingTask(model, recipe.objective.build(context)).to(fabric.device)
    optimizer = build_optimizer(task, recipe.optimizer, fabric.device)
    wrapped, wrapped_optimizer = fabric.setup(task, optimizer)
    epochs = recipe.train.epochs or 0
    return TrainingLoop(
        recipe=recipe,
        fabric=fabric,
        task=wrapped,
        optimizer=wrapped_optimizer,
        batches=pairs.batches,
        prepare=PixelPreparation(preprocessing.image, Augmentation(recipe.augmentation, recipe.train.seed)),
        folder=folder.checkpoints,
        fingerprint=pairs.fingerprint,
        total_steps=recipe.train.steps or epochs * pairs.batches.batches_per_epoch,
    )


def _validation(
    recipe: Recipe,
    loop: TrainingLoop,
    model: DualEncoder,
    preprocessing: Preprocessing,
    split: Manifest,
    resources: ExitStack,
) -> Validation | None:
    if not split.records:
        return None
    pairs = None
    if recipe.train.select_by == "loss":
        described = usable_records(recipe, split)
        pairs = open_split(
            recipe,
            described,
            preprocessing,
            Rejections(len(described.records), recipe.data.max_rejected, source=str(split.folder)),
            device=loop.fabric.device,
            training=False,
            resources=resources,
            show_progress=False,
        )
    encoder = Encoder(model, preprocessing, loop.fabric.device)
    return Validation(recipe, split, encoder, None if pairs is None else pairs.batches, loop.batch_loss)


def _start(loop: TrainingLoop, folder: RunFolder, checkpoint: Checkpoint | None) -> None:
    """Begin at step 0 with a first checkpoint, or where a checkpoint ends."""
    if checkpoint is None:
        loop.save(folder.last.name)
        folder.write_recipe(loop.recipe)
        return
    if checkpoint.data != loop.fingerprint:
        raise TrainingError(
            f"The training data are not those that the run in {folder.path} was started with: give the same "
            "--data, or start a new run in another folder."
        )
    loop.restore(checkpoint)


def _write_bundle(
    recipe: Recipe, loop: TrainingLoop, folder: RunFolder, model: DualEncoder, preprocessing: Preprocessing
) -> dict[str, float]:
    """Write the bundle of the chosen checkpoint, and give the figures that belong to its weights."""
    chosen = load_checkpoint(folder.best if loop.metrics else folder.last)
    loop.task.load_state_dict(chosen.task)
    save_bundle(
        folder.bundle,
        name=recipe.name,
        model=model,
        preprocessing=preprocessing,
        metrics=chosen.metrics,
        recipe_yaml=dump_recipe(recipe),
    )
    return chosen.metrics


def _unreadable(validation: Validation | None, source: str) -> Rejections:
    """The images of the validation split that turned out to be broken."""
    total = 0 if validation is None else len(validation.manifest.records)
    rejections = Rejections(total, max_share=1.0, source=f"the validation split of {source}")
    for broken in () if validation is None else validation.broken.values():
        rejections.add(broken.line, broken.reason)
    return rejections


def _report(*parts: Rejections) -> tuple[Rejection, ...]:
    for rejections in parts:
        if rejections.items:
            logger.warning("%s", rejections.summary())
    return tuple(item for rejections in parts for item in rejections.items)

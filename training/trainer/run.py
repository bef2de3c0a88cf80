"""One training run, from a recipe and data to a bundle: read `train` from top to bottom."""

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import yaml
from torch import nn

from training.common.errors import DataError, RecipeError
from training.common.host import keep_freed_memory
from training.common.manifest import Manifest, Rejection, Rejections
from training.data.augmentation import Augmentation
from training.data.datasets import Items, as_manifest
from training.models.bundle import read_bundle, save_bundle
from training.models.config import Modality
from training.models.encoder import load_trainable
from training.objectives.base import LossOutput, given_objective
from training.recipes.load import dump_recipe, load_recipe, parse_recipe
from training.recipes.pretrained_preprocessing import with_pretrained_preprocessing
from training.recipes.schema import Recipe
from training.trainer.batch_loss import BatchLoss
from training.trainer.batches import Batch, BatchLoader, PixelPreparation, without_missing
from training.trainer.loop import Callback, Task
from training.trainer.memory.plan import settled_chunk_size
from training.trainer.modules import EncoderModule
from training.trainer.opening import RunOptions, open_run
from training.trainer.optimisation.batch_norm import warn_of_batch_norm
from training.trainer.optimisation.cached_gradients import even_chunks
from training.trainer.optimisation.locked_tower import EncodedByTower, LockedEncoder, locked_towers
from training.trainer.optimisation.lora import add_lora, merge_lora
from training.trainer.optimisation.parameter_groups import (
    MakeOptimizer,
    build_optimizer,
    check_optimizer,
    given_optimizer,
)
from training.trainer.requirements import check_regions, used_modalities, warn_of_slow_random_towers
from training.trainer.run_state.checkpoint import load_weights
from training.trainer.run_state.devices import chosen_precision
from training.trainer.run_state.processes import Processes
from training.trainer.run_state.tracking import TrackerName
from training.trainer.setup import (
    ObjectiveResources,
    build_model,
    build_objective,
    checkpoint_gradients,
    compile_towers,
    heads_alone,
    thaw_random_towers,
    usable_records,
    with_temperature,
)
from training.trainer.split_data import SplitOpener
from training.trainer.validation import Validation, check_comparable, check_selectable

# What of a line can be broken once the line was read.
_FILES: Final = "images or sounds"
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TrainResult:
    """What a finished run leaves.

    Attributes:
        bundle: Folder of the encoder with the best validation figure.
        metrics: Figures of that encoder on the validation split; empty without one.
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
    recipe: Recipe | str,
    data: Path | str | Manifest | Items,
    out: Path | str,
    *,
    objective: nn.Module | None = None,
    callbacks: Sequence[Callback] = (),
    optimizer: MakeOptimizer | None = None,
    resume: bool = False,
    device: str = "auto",
    show_progress: bool = True,
    trackers: Sequence[TrackerName] = (),
    encoded: EncodedByTower | None = None,
) -> TrainResult:
    """Train a dual encoder and write its bundle.

    `out` then contains `bundle/`, `checkpoints/last.pt` and `best.pt`, `metrics.jsonl`, `tensorboard/` and
    the resolved `recipe.yaml`. The global random generators are seeded.

    Started by torchrun, all processes train one model together, each on its share of every batch. The first
    one writes and reports, and all return the same.

    Args:
        recipe: What to train and how, or the name or path of a recipe.
        data: Folder of a manifest; or records in memory, a sequence or a torch Dataset of mappings with the
            keys of a manifest, whose `image` is a path, the bytes of a file, a picture or an array. These are
            written to `out/data`.
        out: Empty or new; with `resume`, the folder of a run with the same recipe and data.
        objective: Instead of the recipe's: an `Objective`, or a module whose `forward(image, text)` gives a
            scalar.
        callbacks: Called at each step and measurement, in this order.
        optimizer: Instead of the recipe's: makes one from parameter groups with `lr` and `weight_decay`, as
            `functools.partial(torch.optim.SGD, momentum=0.9)` does.
        resume: Go on from the last checkpoint; on a CPU the result is bit-equal to a run that never stopped.
        device: A torch device; "auto": the GPU if there is one, otherwise the CPU.
        show_progress: Show bars on standard error.
        trackers: Trackers in addition to TensorBoard.
        encoded: What locked towers encoded for validation in earlier runs of this process, which need not be
            encoded again; it gets what this run encodes.

    Raises:
        RecoquestError: Something that you can fix; the message says what.
    """
    if isinstance(callbacks, Callback) or not all(isinstance(one, Callback) for one in callbacks):
        raise RecipeError("callbacks= is a list of objects of classes that derive from Callback: give one.")
    keep_freed_memory()
    recipe = load_recipe(recipe) if isinstance(recipe, str) else recipe
    if objective is not None:
        recipe = recipe.model_copy(update={"objective": given_objective(objective)})
    recipe = _prepared(recipe)
    if optimizer is not None:
        recipe = recipe.model_copy(update={"optimizer": given_optimizer(recipe.optimizer, optimizer)})
    else:
        check_optimizer(recipe.optimizer)
    modalities = used_modalities(recipe)
    options = RunOptions(Path(out), resume, device, show_progress, tuple(trackers))
    with open_run(recipe, options) as run, ExitStack() as resources:
        folder, processes, checkpoint = run.folder, run.processes, run.checkpoint
        if checkpoint is not None:
            recipe = recipe.settled_as(parse_recipe(yaml.safe_load(checkpoint.recipe), "The run's recipe"))

        # The data.
        manifest = as_manifest(data, folder.data, max_rejected=recipe.data.max_rejected)
        train_split = usable_records(recipe, manifest.split("train"), modalities)
        val_split = manifest.split("val")
        _check_validation(recipe, val_split, modalities)

        # Model and objective. All processes have the same weights, and random numbers of their own.
        offered = ObjectiveResources.of_run(recipe, train_split, run.fabric.device)
        built = build_objective(recipe, train_split, offered)
        if recipe.train.start_from is not None:
            start = replace(read_bundle(Path(recipe.train.start_from)), config=recipe.model)
            model, preprocessing = load_trainable(start)
        else:
            model, preprocessing = build_model(recipe, train_split, load_pretrained=checkpoint is None)
        check_regions(built, model, recipe.preprocessing.image.size)
        if recipe.train.lora is not None:
            add_lora(model, recipe.train.lora)
        if recipe.train.gradient_checkpointing:
            checkpoint_gradients(model)
        model.train()
        share = recipe.train.batch_size // processes.count
        synchronised = run.synchronise_batch_norm(
            model,
            smallest=min(map(_length, even_chunks(share, recipe.train.encoded_at_once))),
            several=recipe.train.sync_batch_norm,
        )
        module = EncoderModule(model, built, recipe.train.ema_decay)
        if checkpoint is not None and recipe.model.image.frozen_layers == "all":
            # Features of a locked tower are made before the loop takes up the rest.
            load_weights(module, checkpoint, folder.last)
        if recipe.train.compile:
            compile_towers(model)
        run.share_weights(module, recipe.train.seed)

        # Batches.
        locked = locked_towers(model, built, recipe, preprocessing, run.fabric)
        opener = SplitOpener(
            recipe, preprocessing, modalities, run.fabric.device, processes, resources, built, offered, locked
        )
        broken = train_split.rejections.continued(len(train_split.records), _FILES)
        pairs = opener.open(train_split, broken, training=True, show_progress=run.show_progress)
        processes.check_alike(pairs.fingerprint + dump_recipe(recipe), "recipes or training data")

        # The loss of a batch, in as few chunks as the memory allows.
        shortcuts = pairs.batches.shortcuts
        prepare = PixelPreparation(
            preprocessing.image,
            Augmentation(recipe.augmentation, recipe.train.seed),
            None if shortcuts is None else shortcuts.overlay(),
        )
        loss = BatchLoss(module, run.fabric, prepare)
        loss = replace(loss, chunk_size=settled_chunk_size(recipe.train, loss, pairs.batches, processes))
        recipe = recipe.with_chunk_size(loss.chunk_size)
        warn_of_batch_norm(
            model,
            chunks=len(even_chunks(share, loss.chunk_size or share)) > 1,
            shares=processes.count > 1 and not synchronised,
        )

        # Validation.
        validation = None
        if val_split.records:
            mixed = chosen_precision(recipe.train.precision, run.fabric.device) == "bf16"
            encoder = LockedEncoder(
                module.result, preprocessing, run.fabric.device, *locked, in_bfloat16=mixed, encoded=encoded
            )
            loss_batches = None
            if recipe.train.select_by == "loss":
                described = usable_records(recipe, val_split, modalities)
                rejections = val_split.rejections.continued(len(described.records), _FILES)
                loss_batches = opener.open(described, rejections, training=False).batches
            validation = Validation(recipe, val_split, encoder, loss_batches, loss.value, processes)

        # The loop.
        loop = run.fit(
            EncoderTask(recipe, loss, pairs.batches, pairs.fingerprint, processes, validation),
            recipe,
            build_optimizer(module, recipe, run.fabric.device, optimizer),
            total_steps=recipe.train.steps or (recipe.train.epochs or 0) * pairs.batches.batches_per_epoch,
            callbacks=callbacks,
        )

        # The bundle of the best checkpoint.
        metrics: dict[str, float] = {}
        if processes.is_main:
            metrics = loop.load_best().metrics if loop.metrics else {}
            if recipe.train.lora is not None:
                merge_lora(module.result)
            save_bundle(
                folder.bundle,
                name=recipe.name,
                model=module.result,
                preprocessing=preprocessing,
                metrics=metrics,
                recipe_yaml=dump_recipe(recipe),
            )
        metrics = processes.broadcast(metrics)
        unreadable = Rejections.of(
            () if validation is None else validation.broken.values(),
            0 if validation is None else len(val_split.records),
            f"the validation split of {manifest.folder}",
        )
        return TrainResult(folder.bundle, metrics, run.report(manifest.rejections, broken, unreadable))


class EncoderTask(Task[Batch]):
    """Model and objective, the pairs that they are trained on, and the validation split.

    Args:
        recipe: Resolved.
        loss: Loss of the model and the objective that are trained.
        batches: Pairs of the train split.
        fingerprint: Digest of the pairs.
        processes: Processes that train together.
        validation: None without a validation split.
    """

    def __init__(
        self,
        recipe: Recipe,
        loss: BatchLoss,
        batches: BatchLoader,
        fingerprint: str,
        processes: Processes,
        validation: Validation | None,
    ) -> None:
        self.loss, self.batches, self.fingerprint = loss, batches, fingerprint
        self.processes, self.validation = processes, validation
        self.module = loss.module
        self.chosen_by = recipe.train.select_by
        self.in_one_pass = loss.chunk_size is None
        self.measured_at_start = recipe.train.start_from is not None

    def backward(self, batch: Batch, step: int) -> tuple[LossOutput, int]:
        """Add the gradient of the objective.

        Raises:
            DataError: Broken files left fewer than two items, which can't be told apart or normalized.
        """
        batch = without_missing(batch, self.processes)
        share = batch.inputs.batch_size // self.processes.count
        if len(batch.inputs) < min(2, share):
            raise DataError(
                "Fewer than two items of a batch can be read: mend the data, or set data.cache_images to "
                "true, which leaves broken images out from the start."
            )
        return self.loss.backward(batch, step), len(batch.inputs)

    @property
    def validated(self) -> bool:
        """Whether there is a validation split."""
        return self.validation is not None

    def measure(self) -> dict[str, float]:
        """Return the retrieval of the validation split, and its loss if that decides."""
        return {} if self.validation is None else self.validation.measure()


def _prepared(recipe: Recipe) -> Recipe:
    """Return the recipe with the model of the bundle it starts from, or with nothing frozen in random towers.

    Preprocessing and temperature that the towers bring are written out in it, so what a run leaves says which
    they were.
    """
    if recipe.train.start_from is not None:
        start = read_bundle(Path(recipe.train.start_from))
        recipe = recipe.model_copy(update={"model": start.config, "preprocessing": start.preprocessing})
        return with_temperature(heads_alone(recipe) if recipe.train.heads else recipe, start)
    if recipe.train.heads:
        recipe = heads_alone(recipe)
    recipe = thaw_random_towers(with_pretrained_preprocessing(recipe))
    warn_of_slow_random_towers(recipe)
    return with_temperature(recipe)


def _check_validation(recipe: Recipe, split: Manifest, modalities: frozenset[Modality]) -> None:
    if not split.records:
        logger.warning("There is no validation split: the bundle will hold the last weights, not the best.")
        return
    by_pairs = recipe.model.pair_attention is not None
    check_selectable(recipe.train.select_by, split, modalities, by_pairs=by_pairs)
    if recipe.train.select_by == "loss" and recipe.objective.compares_items:
        check_comparable(usable_records(recipe, split, modalities), modalities)


def _length(chunk: slice) -> int:
    return int(chunk.stop - chunk.start)

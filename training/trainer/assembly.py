"""A training loop and all that it needs, put together from a recipe and the data."""

from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from lightning_fabric import Fabric
from torch import nn

from training.common.errors import DataError
from training.common.manifest import Manifest
from training.common.rejections import Rejections
from training.data.augmentation import Augmentation
from training.models.bundle import read_bundle
from training.models.config import Modality
from training.models.dual_encoder import DualEncoder
from training.models.encoder import load_trainable
from training.models.preprocessing import Preprocessing
from training.models.sentence_encoder import SentenceEncoder
from training.objectives.base import LossOutput
from training.recipes.load import dump_recipe
from training.recipes.schema import Recipe
from training.trainer.batch_loss import BatchLoss
from training.trainer.batches import (
    Batch,
    BatchLoader,
    PixelPreparation,
    Targets,
    whole_text,
    without_missing,
)
from training.trainer.loop import Problem, TrainingLoop
from training.trainer.memory.plan import settled_chunk_size
from training.trainer.optimisation.batch_norm import check_batch_norm, synchronise, warn_of_batch_norm
from training.trainer.optimisation.cached_gradients import even_chunks
from training.trainer.optimisation.locked_tower import LockedEncoder, locked_towers
from training.trainer.optimisation.lora import add_lora
from training.trainer.optimisation.parameter_groups import build_optimizer
from training.trainer.requirements import check_regions
from training.trainer.run_state.checkpoint import Checkpoint, load_weights, seed_everything
from training.trainer.run_state.devices import chosen_precision
from training.trainer.run_state.folder import RunFolder
from training.trainer.run_state.processes import Processes
from training.trainer.setup import (
    build_captions,
    build_labelling,
    build_model,
    build_objective,
    checkpoint_gradients,
    compile_towers,
    usable_records,
)
from training.trainer.split_data import SplitData, SplitOpener
from training.trainer.task import TrainingTask
from training.trainer.validation import Validation

# What of a line can be broken once the line was read.
_FILES: Final = "images or sounds"


@dataclass(kw_only=True)
class EncoderProblem(Problem[Batch]):
    """Model and objective, the pairs that they are trained on, and the validation split.

    Attributes:
        recipe: Resolved.
        loss: Of the model and the objective that are trained.
        batches: Pairs of the train split.
        fingerprint: Of the pairs.
        processes: That train together.
        validation: None without a validation split.
    """

    recipe: Recipe
    loss: BatchLoss
    batches: BatchLoader
    fingerprint: str
    processes: Processes
    validation: Validation | None = None

    def __post_init__(self) -> None:
        self.module = self.loss.task
        self.chosen_by = self.recipe.train.select_by
        self.in_one_pass = self.loss.chunk_size is None
        self.measured_at_start = self.recipe.train.start_from is not None

    def backward(self, batch: Batch, step: int) -> tuple[LossOutput, int]:
        """Add the gradient of the objective.

        Raises:
            DataError: Broken files left too little of the batch.
        """
        batch = without_missing(batch, self.processes)
        _check_size(batch, self.processes)
        return self.loss.backward(batch, step), len(batch.inputs)

    @property
    def validated(self) -> bool:
        """Whether there is a validation split."""
        return self.validation is not None

    def measure(self) -> dict[str, float]:
        """The retrieval of the validation split, and its loss where that decides."""
        return {} if self.validation is None else self.validation.measure()


def _check_size(batch: Batch, processes: Processes) -> None:
    """Make sure that broken files left enough of a batch to tell items apart, and to normalise them.

    Raises:
        DataError: They did not.
    """
    share = batch.inputs.batch_size // processes.count
    if len(batch.inputs) < min(2, share):
        raise DataError(
            "Fewer than two items of a batch can be read: mend the data, or set data.cache_images to true, "
            "which leaves broken images out from the start."
        )


@dataclass(frozen=True)
class Splits:
    """The data of a run.

    Attributes:
        train: What can be trained on.
        val: Of the manifest; may be empty.
    """

    train: Manifest
    val: Manifest


@dataclass(frozen=True)
class Assembled:
    """A run that is ready to begin or to be resumed.

    Attributes:
        loop: At step 0.
        problem: Of the loop.
        model: Measured and kept: that it trains, or the average of its weights.
        preprocessing: Of what the model sees.
        broken: Files of the train split that cannot be read, as this process has found so far.
    """

    loop: TrainingLoop[Batch]
    problem: EncoderProblem
    model: DualEncoder
    preprocessing: Preprocessing
    broken: Rejections


@dataclass(frozen=True)
class Assembly:
    """Puts the loop of a run together.

    Attributes:
        recipe: Resolved.
        modalities: That the objective uses.
        fabric: Device and precision.
        processes: That train together.
        folder: Of the run.
        resources: Ends the threads that decode when it is closed.
    """

    recipe: Recipe
    modalities: frozenset[Modality]
    fabric: Fabric
    processes: Processes
    folder: RunFolder
    resources: ExitStack

    def assemble(
        self, splits: Splits, checkpoint: Checkpoint | None = None, *, show_progress: bool
    ) -> Assembled:
        """The loop and its parts; all processes have the same weights and random numbers of their own.

        Args:
            splits: The data.
            checkpoint: That the run goes on from; None: it begins.
            show_progress: Show bars on standard error.

        Raises:
            RecoquestError: Something that the user can mend.
        """
        recipe, device = self.recipe, self.fabric.device
        seed_everything(recipe.train.seed)
        sentences = self._sentence_encoder()
        captions = build_captions(recipe, splits.train)
        objective = build_objective(
            recipe,
            splits.train,
            None if sentences is None else sentences.dim,
            None if captions is None else captions.tokenizer.size,
        )
        if recipe.train.start_from is not None:
            start = replace(read_bundle(Path(recipe.train.start_from)), config=recipe.model)
            model, preprocessing = load_trainable(start)
        else:
            model, preprocessing = build_model(recipe, splits.train, load_pretrained=checkpoint is None)
        check_regions(objective, model, recipe.preprocessing.image.size)
        if recipe.train.lora is not None:
            add_lora(model, recipe.train.lora)
        if recipe.train.gradient_checkpointing:
            checkpoint_gradients(model)
        model.train()
        self._synchronise_batch_norm(model)
        task = TrainingTask(model, objective, recipe.train.ema_decay).to(device)
        if checkpoint is not None and recipe.model.image.frozen_layers == "all":
            # Features of a locked tower are made before the loop takes up the rest.
            load_weights(task, checkpoint, self.folder.last)
        if recipe.train.compile:
            compile_towers(model)
        self.processes.share_weights(task)
        if self.processes.rank:
            seed_everything(recipe.train.seed, self.processes.rank)
        locked, locked_text = locked_towers(model, objective, recipe, preprocessing, self.fabric)
        opener = SplitOpener(
            recipe,
            preprocessing,
            self.modalities,
            device,
            self.processes,
            self.resources,
            _targets(sentences) if sentences is not None and "targets" in objective.requires else None,
            captions,
            build_labelling(recipe, splits.train) if "labels" in objective.requires else None,
            locked,
            locked_text,
        )
        broken = splits.train.rejections.continued(len(splits.train.records), _FILES)
        pairs = opener.open(splits.train, broken, training=True, show_progress=show_progress)
        self.processes.check_alike(pairs.fingerprint + dump_recipe(recipe), "recipes or training data")
        loss_batches = self._loss_batches(splits.val, opener) if splits.val.records else None
        problem = self._problem(task, pairs, preprocessing)
        if splits.val.records:
            mixed = chosen_precision(recipe.train.precision, device) == "bf16"
            encoder = LockedEncoder(
                task.result, preprocessing, device, locked, locked_text, in_bfloat16=mixed
            )
            problem.validation = Validation(
                problem.recipe, splits.val, encoder, loss_batches, problem.loss.value, self.processes
            )
        return Assembled(self._loop(problem), problem, task.result, preprocessing, broken)

    def _sentence_encoder(self) -> SentenceEncoder | None:
        name = self.recipe.data.target_encoder
        return None if name is None else SentenceEncoder.load(name, self.fabric.device)

    def _synchronise_batch_norm(self, model: nn.Module) -> None:
        """Let batch norm see all processes where it can, and make sure that it sees two items at least."""
        chunks = even_chunks(self._share, self.recipe.train.encoded_at_once)
        check_batch_norm(model, smallest=min(chunk.stop - chunk.start for chunk in chunks))
        if self._synchronises:
            synchronise(model)

    @property
    def _share(self) -> int:
        """Items of a batch that this process encodes."""
        return self.recipe.train.batch_size // self.processes.count

    @property
    def _synchronises(self) -> bool:
        on_gpus = self.processes.count > 1 and self.fabric.device.type == "cuda"
        return on_gpus and self.recipe.train.sync_batch_norm

    def _problem(self, task: TrainingTask, pairs: SplitData, preprocessing: Preprocessing) -> EncoderProblem:
        shortcuts = pairs.batches.shortcuts
        digits = None if shortcuts is None else shortcuts.overlay()
        augmentation = Augmentation(self.recipe.augmentation, self.recipe.train.seed)
        loss = BatchLoss(task, self.fabric, PixelPreparation(preprocessing.image, augmentation, digits))
        chunk_size = settled_chunk_size(self.recipe.train, loss, pairs.batches, self.processes)
        warn_of_batch_norm(
            task.model,
            chunks=len(even_chunks(self._share, chunk_size or self._share)) > 1,
            shares=self.processes.count > 1 and not self._synchronises,
        )
        return EncoderProblem(
            recipe=self.recipe.with_chunk_size(chunk_size),
            loss=replace(loss, chunk_size=chunk_size),
            batches=pairs.batches,
            fingerprint=pairs.fingerprint,
            processes=self.processes,
        )

    def _loop(self, problem: EncoderProblem) -> TrainingLoop[Batch]:
        recipe, device = problem.recipe, self.fabric.device
        epochs, rates = recipe.train.epochs or 0, recipe.optimizer
        if recipe.train.lora is not None:
            rates = rates.model_copy(update={"tower_lr": recipe.train.lora.lr})
        return TrainingLoop(
            recipe=recipe,
            problem=problem,
            optimizer=build_optimizer(problem.loss.task, rates, device),
            device=device,
            folder=self.folder,
            total_steps=recipe.train.steps or epochs * problem.batches.batches_per_epoch,
            processes=self.processes,
        )

    def _loss_batches(self, val: Manifest, opener: SplitOpener) -> BatchLoader | None:
        """The pairs of the validation split when their loss is what selects."""
        if self.recipe.train.select_by != "loss":
            return None
        described = usable_records(self.recipe, val, self.modalities)
        rejections = val.rejections.continued(len(described.records), _FILES)
        return opener.open(described, rejections, training=False).batches


def _targets(sentences: SentenceEncoder) -> Targets:
    return lambda texts: sentences.encode([whole_text(text) for text in texts])

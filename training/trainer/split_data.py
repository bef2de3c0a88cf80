"""The data of one split, opened so that batches can be drawn from it."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import torch
from torch import Tensor

from training.common.errors import DataError, RecipeError
from training.common.manifest import Manifest, Record, Rejections
from training.data.audio import AudioDecoder, AudioSource
from training.data.image_source import Decoder, open_images
from training.data.pairs import PairSampler
from training.models.config import Modality
from training.models.preprocessing import Preprocessing
from training.objectives.base import Extras, Objective, ObjectiveData, errors_of_own_code
from training.recipes.schema import Recipe
from training.shortcuts.shortcuts import Shortcuts
from training.trainer.batches import BatchLoader, ReadTexts
from training.trainer.optimisation.locked_tower import LockedTextTower, LockedTower
from training.trainer.run_state.checkpoint import fingerprint
from training.trainer.run_state.processes import Processes
from training.trainer.setup import ObjectiveResources


@dataclass(frozen=True)
class SplitData:
    """The pairs of one split, ready to be drawn.

    Attributes:
        batches: Loads the batch of any position.
        fingerprint: Over the ids, texts and labels that are drawn from, in order.
    """

    batches: BatchLoader
    fingerprint: str


@dataclass(frozen=True)
class SplitOpener:
    """What the splits of a run have in common.

    Attributes:
        recipe: Recipe of the run.
        preprocessing: Preprocessing of everything that the encoder sees.
        modalities: Modalities that the objective uses.
        device: Device that the loop computes on.
        processes: Whose share is loaded.
        resources: Ends the threads that decode when it is closed.
        objective: Objective of the run; None: its batches carry nothing for it alone.
        offered: What it may use.
        locked: Towers of images and texts whose features replace them; None if one may change.
    """

    recipe: Recipe
    preprocessing: Preprocessing
    modalities: frozenset[Modality]
    device: torch.device
    processes: Processes
    resources: ExitStack
    objective: Objective | None = None
    offered: ObjectiveResources = field(default_factory=ObjectiveResources)
    locked: tuple[LockedTower | None, LockedTextTower | None] = (None, None)

    def open(
        self, split: Manifest, rejections: Rejections, *, training: bool, show_progress: bool = False
    ) -> SplitData:
        """Read the images of a split and prepare to draw its pairs.

        Args:
            split: Records with something of each modality.
            rejections: Where broken files are counted.
            training: False draws every image, and a split smaller than a batch is one batch.
            show_progress: Show a bar on standard error.

        Raises:
            DataError: Too many files are broken, or fewer than a batch remain.
        """
        # Too few records are reported before minutes are spent on reading them.
        sampler = self._sampler(split.records, training=training)
        data, image = self.recipe.data, self.preprocessing.image
        if training and self.recipe.augmentation.crops:
            image = image.whole()
        images = open_images(
            Decoder(split, image),
            rejections,
            cache=data.cache_images,
            threads=data.workers,
            device=self.device,
            processes=self.processes,
            show_progress=show_progress,
            encoding=self.locked[0] if self._all_are_drawn(len(split.records), training=training) else None,
        )
        self.resources.callback(images.close)
        records = [split.records[row] for row in images.readable]
        if len(records) < len(split.records):
            sampler = self._sampler(records, training=training)
        extras = Extras()
        if self.objective is not None:
            extras = _prepared(self.objective, self.offered.data(records))
        loader = BatchLoader(
            sampler,
            images,
            self._texts(sampler, split, training=training, show_progress=show_progress),
            audio=self._audio(split, rejections) if "audio" in self.modalities else None,
            extras=extras,
            rows=images.readable,
            training=training,
            shortcuts=self._shortcuts(split) if training else None,
            processes=self.processes,
        )
        return SplitData(loader, fingerprint(map(_drawn, records), extras.rows.values()))

    def _all_are_drawn(self, count: int, *, training: bool, texts_of: int | None = None) -> bool:
        """Whether a run draws about as many things as there are, or more, or is to encode all of them.

        Args:
            count: How many there are.
            training: False draws all.
            texts_of: Number of images whose texts they are, of which an epoch draws one each.
        """
        train = self.recipe.train
        if not training or train.heads:
            return True
        if train.steps is not None:
            return train.steps * train.batch_size >= count
        every = texts_of is None or self.recipe.data.epoch_of == "texts"
        return every or (train.epochs or 0) * (texts_of or 0) >= count

    def _texts(
        self, sampler: PairSampler, split: Manifest, *, training: bool, show_progress: bool
    ) -> ReadTexts | None:
        """What makes the texts of a batch: their features where the text tower is locked, else their ids."""
        if "text" not in self.modalities:
            return None
        texts = set(sampler.every_text())
        drawn = self._all_are_drawn(len(texts), training=training, texts_of=len(sampler.records))
        encoded = None
        locked_text = self.locked[1]
        if locked_text is not None and drawn:
            on_disk = self.recipe.data.cache_images is True
            encoded = locked_text.encoded(
                texts, split.folder, self.processes, on_disk=on_disk, show_progress=show_progress
            )
        return encoded or self.preprocessing.text

    def _sampler(self, records: Sequence[Record], *, training: bool) -> PairSampler:
        data, train = self.recipe.data, self.recipe.train
        unit = data.text_unit if self.recipe.draws_texts else None
        if training:
            return PairSampler(
                records,
                train.batch_size,
                train.seed,
                data.one_image_per,
                unit,
                every_text=data.epoch_of == "texts",
            )
        count = self.processes.count
        size = min(train.batch_size, len(records)) // count * count
        if size == 0:
            raise DataError(
                f"The validation split has {len(records)} images that can be used, fewer than there are "
                "processes: give it more, or set train.select_by to rsum."
            )
        return PairSampler(records, size, train.seed, text_unit=unit, fill_up=True)

    def _audio(self, split: Manifest, rejections: Rejections) -> AudioSource:
        data = self.recipe.data
        decoder = AudioDecoder(split, self.preprocessing.audio)
        source = AudioSource(decoder, rejections, cache=bool(data.cache_images), threads=data.workers)
        self.resources.callback(source.close)
        return source

    def _shortcuts(self, split: Manifest) -> Shortcuts | None:
        config = self.recipe.data.shortcut
        return None if config is None else Shortcuts(config, self.recipe.train.seed, len(split.records))


def _prepared(objective: Objective, data: ObjectiveData) -> Extras:
    """Return what an objective's batches carry for it alone.

    Raises:
        RecipeError: It is something else, or has other rows than the data.
    """
    with errors_of_own_code():
        extras = objective.prepare(data)
    name, count = type(objective).__name__, len(data.records)
    if not isinstance(extras, Extras):
        raise RecipeError(f"prepare() of {name} returned {type(extras).__name__}: return Extras.")
    for key, rows in extras.rows.items():
        if not isinstance(rows, Tensor) or rows.shape[:1] != (count,):
            kind = f"of shape {tuple(rows.shape)}" if isinstance(rows, Tensor) else type(rows).__name__
            raise RecipeError(
                f"prepare() of {name} returned rows {key!r} {kind}: give a tensor with a row for each of the "
                f"{count:,} records."
            )
    return extras


def _drawn(record: Record) -> list[object]:
    """Return what batches draw of a record: its id, texts, the name of a sound, and texts that don't fit."""
    rest: list[object] = [] if record.audio is None else [record.audio]
    rest += [record.not_texts] if record.not_texts else []
    return [record.id, record.texts, *rest]

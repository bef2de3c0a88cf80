"""The training images of a run: read, drawn in batches, and changed at random."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from training.classification.images.config import ImageRecipe
from training.data.augmentation import Augmentation
from training.data.image_source import Decoder, open_images
from training.data.labels import positives
from training.data.manifest import Manifest, Rejections
from training.data.pairs import PairSampler
from training.errors import DataError
from training.models.preprocessing import ImagePreprocessing
from training.tasks.opening import OpenRun
from training.trainer.batches import Batch, BatchLoader, without_missing
from training.trainer.pixels import PixelPreparation


@dataclass(frozen=True)
class TrainingImages:
    """Images and labels of a run's steps.

    Attributes:
        batches: Every image once an epoch in random order; the first of it fill the last batch up.
        smallest_share: Images that a process has of a batch.
        targets: (N, L), 1 where an image of the split has a label.
        prepare: Makes pixels of images in the way of a step.
        run: That trains on them.
    """

    batches: BatchLoader
    smallest_share: int
    targets: Tensor
    prepare: PixelPreparation
    run: OpenRun

    def inputs(self, batch: Batch, step: int) -> tuple[Tensor, Tensor]:
        """Pixels (B, 3, S, S), changed at random in the way of a step, and targets (B, L)."""
        batch, device = without_missing(batch, self.run.processes), self.run.fabric.device
        assert batch.items is not None
        pixels = self.prepare(batch.inputs.to(device), step)
        return pixels, self.targets[batch.items].to(device, non_blocking=True)


@contextmanager
def opened(
    split: Manifest,
    labels: tuple[str, ...],
    recipe: ImageRecipe,
    preprocessing: ImagePreprocessing,
    broken: Rejections,
    run: OpenRun,
) -> Iterator[TrainingImages]:
    """Read the images of a split, or decode them as they are needed while the block runs.

    Args:
        split: Images to train on.
        labels: Labels in the order of the classifier's outputs.
        recipe: Recipe of the run.
        preprocessing: Preprocessing of the classifier's images.
        broken: Counts images that cannot be read.
        run: That trains on them.

    Raises:
        DataError: Too many images are broken, or there is none.
    """
    data, train, processes = recipe.data, recipe.train, run.processes
    seen = preprocessing.whole() if recipe.augmentation.crops else preprocessing
    images = open_images(
        Decoder(split, seen),
        broken,
        cache=data.cache_images,
        threads=data.workers,
        device=run.fabric.device,
        processes=processes,
        show_progress=run.show_progress,
    )
    try:
        records = [split.records[row] for row in images.readable]
        if not records:
            raise DataError(f"No training image of {split.folder} can be read: mend the data.")
        count = processes.count
        size = max(count, min(train.batch_size, len(records) // count * count))
        sampler = PairSampler(records, size, train.seed, text_unit=None, fill_up=True)
        yield TrainingImages(
            batches=BatchLoader(
                sampler, images, None, rows=images.readable, training=True, processes=processes
            ),
            smallest_share=size // count,
            targets=torch.from_numpy(positives(split.records, labels)).float(),
            prepare=PixelPreparation(preprocessing, Augmentation(recipe.augmentation, train.seed)),
            run=run,
        )
    finally:
        images.close()

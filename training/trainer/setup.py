"""What a run is made of, built from a recipe and a manifest."""

import hashlib
import json
import logging
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Literal

import torch
from lightning_fabric import Fabric
from torch import Tensor

from training.data.augmentation import Augmentation
from training.data.image_source import Decoder, open_images
from training.data.manifest import Manifest, Record, Rejections
from training.data.pairs import PairSampler, describable
from training.errors import DataError
from training.models.dual_encoder import DualEncoder, build_dual_encoder
from training.models.preprocessing import ImagePreprocessing, Preprocessing
from training.models.tokenizer import build_tokenizer
from training.recipes.schema import Recipe
from training.trainer.batches import BatchLoader

logger = logging.getLogger(__name__)

_FABRIC_PRECISION: dict[str, Literal["bf16-mixed", "32-true"]] = {"bf16": "bf16-mixed", "fp32": "32-true"}


def build_fabric(precision: Literal["auto", "fp32", "bf16"], device: torch.device) -> Fabric:
    """Fabric for one device; `auto` takes bfloat16 on a GPU that has it, else float32."""
    on_gpu = device.type == "cuda"
    if precision == "auto":
        # Emulated bfloat16, on GPUs before Ampere, is slower than float32.
        has_bf16 = on_gpu and torch.cuda.is_bf16_supported(including_emulation=False)
        precision = "bf16" if has_bf16 else "fp32"
    return Fabric(
        accelerator=device.type,
        devices=[device.index or 0] if on_gpu else 1,
        precision=_FABRIC_PRECISION[precision],
    )


def pin_threads() -> None:
    """Fix the number of threads at what torch uses now, for the mathematics libraries too.

    Until it is set, MKL picks a number for each product, and another number adds up in another order: a
    resumed run could differ from one that never stopped in the last bits.
    """
    torch.set_num_threads(torch.get_num_threads())


def thaw_random_towers(recipe: Recipe) -> Recipe:
    """The recipe with nothing frozen in towers that start from random weights: noise is not worth keeping."""
    changes = {}
    towers = {"image": recipe.model.image, "text": recipe.model.text, "audio": recipe.model.audio}
    for name, tower in towers.items():
        if tower is not None and tower.pretrained is None and tower.frozen_layers:
            logger.warning(
                "The %s tower starts from random weights, so all its layers are trained. "
                "Give pretrained weights with --set model.%s.pretrained=FOLDER.",
                name,
                name,
            )
            changes[name] = tower.model_copy(update={"frozen_layers": 0})
    return recipe.model_copy(update={"model": recipe.model.model_copy(update=changes)})


def usable_records(recipe: Recipe, manifest: Manifest) -> Manifest:
    """The records of a split that can be trained on: those with a text, or with a sentence from their labels.

    Raises:
        DataError: There is none.
    """
    template = recipe.data.label_template if recipe.data.label_sentences else None
    records = describable(manifest.records, template)
    if not records:
        raise DataError(
            f"No image of this split of {manifest.folder} has a text: add texts, or train on labels with "
            "--set data.label_sentences=true."
        )
    return replace(manifest, records=records)


def build_model(
    recipe: Recipe, train_split: Manifest, *, load_pretrained: bool
) -> tuple[DualEncoder, Preprocessing]:
    """The model and what feeds it; a learned tokenizer sees the texts of the train split only."""
    texts = (text for record in train_split.records for text in record.texts)
    tokenizer = None if recipe.model.text is None else build_tokenizer(recipe.model.text, texts)
    preprocessing = Preprocessing(recipe.preprocessing, tokenizer)
    model = build_dual_encoder(recipe.model, tokenizer, load_pretrained=load_pretrained)
    model.check_preprocessing(preprocessing.config)
    return model, preprocessing


@dataclass(frozen=True)
class SplitData:
    """The pairs of one split, ready to be drawn.

    Attributes:
        batches: Loads the batch of any position.
        fingerprint: Over the ids and texts that are drawn from, in order.
        instances: How many images there are to draw.
    """

    batches: BatchLoader
    fingerprint: str
    instances: int


def open_split(
    recipe: Recipe,
    split: Manifest,
    preprocessing: Preprocessing,
    rejections: Rejections,
    *,
    device: torch.device,
    training: bool,
    resources: ExitStack,
    show_progress: bool,
) -> SplitData:
    """Read the images of a split and prepare to draw its pairs.

    Args:
        recipe: Of the run.
        split: Records with at least one text.
        preprocessing: Of images and texts.
        rejections: Where broken images are counted.
        device: That the loop computes on.
        training: False draws every image, and a split smaller than a batch is one batch.
        resources: Ends the threads that decode when it is closed.
        show_progress: Show a bar on standard error.

    Raises:
        DataError: Too many images are broken, or fewer than a batch remain.
    """
    decoder = Decoder(split, preprocessing.image.to_uint8, recipe.preprocessing.image.size)
    images = open_images(
        decoder,
        rejections,
        cache=recipe.data.cache_images,
        threads=recipe.data.workers,
        device=device,
        show_progress=show_progress,
    )
    resources.callback(images.close)
    records = [split.records[row] for row in images.readable]
    batch_size = recipe.train.batch_size
    if training:
        sampler = PairSampler(records, batch_size, recipe.train.seed, recipe.data.one_image_per)
    else:
        sampler = PairSampler(records, max(1, min(batch_size, len(records))), recipe.train.seed)
    return SplitData(BatchLoader(sampler, images, preprocessing.text), fingerprint(records), len(records))


def fingerprint(records: Sequence[Record]) -> str:
    """SHA-256 over what is drawn: ids and texts in their order."""
    digest = hashlib.sha256()
    for record in records:
        digest.update(json.dumps([record.id, record.texts]).encode())
    return digest.hexdigest()


@dataclass(frozen=True)
class PixelPreparation:
    """Makes what the image tower takes of uint8 images (B, 3, S, S)."""

    image: ImagePreprocessing
    augmentation: Augmentation

    def __call__(self, images: Tensor, step: int | None) -> Tensor:
        """Normalised pixels, changed at random in the way of a step; None: as they are."""
        unit = self.image.to_unit(images)
        return self.image.normalise(unit if step is None else self.augmentation(unit, step))

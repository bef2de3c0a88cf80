"""An image classifier: its model, its training, and the area under the ROC curve of each label."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import torch
from lightning_fabric import Fabric
from PIL import Image
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from training.classification.data import labelled_splits
from training.classification.recipe import ImageRecipe
from training.common.errors import DataError, MissingModalityError, RecipeError
from training.common.host import keep_freed_memory
from training.common.manifest import Manifest, Rejection, Rejections, read_manifest
from training.data.augmentation import Augmentation
from training.data.image_source import Decoder, open_images
from training.data.labels import positives
from training.data.pairs import PairSampler
from training.evaluation.embedding import embed_manifest
from training.evaluation.retrieval import area_under_roc
from training.evaluation.similarity import Vectors
from training.models.config import ImagePreprocessingConfig, Modality
from training.models.encoder import load_image_tower
from training.models.image_input import Pixels, to_pixels
from training.models.image_towers import ImageTower, build_image_tower
from training.models.preprocessing import ImagePreprocessing
from training.models.text_input import TextEmbeddings
from training.recipes.pretrained_preprocessing import images_as_pretrained
from training.trainer.batches import Batch, BatchLoader, PixelPreparation, without_missing
from training.trainer.module_task import ModuleTask, TaskResult, prepare_batch_norm
from training.trainer.modules import TrainedModule
from training.trainer.opening import RunOptions, open_run

MEAN_AUC = "mean_auc"


class ImageClassifier(TrainedModule):
    """An image tower and one linear layer, which predicts labels independently of each other (multi-label).

    Args:
        tower: Without the head that projects into the space of texts.
        labels: Number of labels, and of logits.
        frozen: The tower keeps its weights and its batch norms' statistics (ReCo, section 4.3).
    """

    def __init__(self, tower: ImageTower, labels: int, *, frozen: bool) -> None:
        super().__init__()
        self.image = tower
        self.head = nn.Linear(tower.width, labels)
        self.frozen = frozen
        if frozen:
            tower.requires_grad_(False)
        self.train()

    @property
    def tower(self) -> ImageTower:
        """The image tower."""
        return self.image

    def forward(self, pixels: Tensor, targets: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Binary cross entropy, the mean over images and labels, and no other terms.

        Args:
            pixels: (B, 3, S, S), normalised.
            targets: (B, L), 1 where an image has a label, else 0.
        """
        logits = self.logits(pixels)
        with torch.autocast(logits.device.type, enabled=False):
            return binary_cross_entropy_with_logits(logits.float(), targets), {}

    def logits(self, pixels: Tensor) -> Tensor:
        """Scores (B, L) of normalised images (B, 3, S, S)."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            pooled = self.image(pixels).pooled
        logits: Tensor = self.head(pooled)
        return logits

    def train(self, mode: bool = True) -> "ImageClassifier":
        """Set the mode of all but a frozen tower, which stays in evaluation mode."""
        super().train(mode)
        if self.frozen:
            self.image.eval()
        return self


def build_start(recipe: ImageRecipe, *, load_pretrained: bool) -> tuple[ImageTower, ImagePreprocessing, str]:
    """The tower and the preprocessing that a recipe names, and the bundle's digest; empty without a bundle.

    Args:
        recipe: With an encoder or a model.
        load_pretrained: Load the weights that the model names; False: only the architecture.

    Raises:
        RecipeError: The recipe names neither, or tower and images do not fit.
        BundleError: The bundle cannot be used.
    """
    if recipe.encoder is not None:
        tower, info = load_image_tower(Path(recipe.encoder).expanduser())
        return tower, ImagePreprocessing(info.preprocessing.image), info.digest
    if recipe.model is None:
        raise RecipeError(
            f"{recipe.name} begins with a trained encoder: give its bundle with --set encoder=FOLDER."
        )
    config = recipe.preprocessing or ImagePreprocessingConfig()
    tower = build_image_tower(recipe.model.tower(), load_pretrained=load_pretrained)
    size = tower.backbone.image_size
    if size is not None and size != config.size:
        raise RecipeError(
            f"The image tower takes images of {size} pixels, not {config.size}: set preprocessing.size to "
            f"{size}."
        )
    return tower, ImagePreprocessing(config), ""


@dataclass(frozen=True)
class Scores:
    """Area under the ROC curve of each label on one split.

    Attributes:
        auc: AUC by label, from 0 to 1; labels that all images or none have are left out.
        positives: Images with each label.
        images: Number of images that could be read.
    """

    auc: Mapping[str, float]
    positives: Mapping[str, int]
    images: int

    @property
    def mean(self) -> float:
        """Mean AUC over the labels that have one."""
        return sum(self.auc.values()) / len(self.auc)

    @property
    def figures(self) -> dict[str, float]:
        """The mean and the AUC of each label by name, as a run's metrics have them."""
        return {MEAN_AUC: self.mean, **{f"auc/{label}": auc for label, auc in self.auc.items()}}


@dataclass(frozen=True)
class Scorer:
    """Scores the images of a split; it is an `ImageTextEncoder` whose vectors are the logits.

    Attributes:
        classifier: Classifier in evaluation mode.
        preprocessing: Preprocessing of its images.
        fabric: Device and precision.
        labels: Labels in the order of its outputs.
        batch_size: Images of a forward pass.
        broken: Unreadable images of all splits measured so far, by line of the manifest.
    """

    classifier: ImageClassifier
    preprocessing: ImagePreprocessing
    fabric: Fabric
    labels: Sequence[str]
    batch_size: int
    broken: dict[int, Rejection] = field(default_factory=dict)
    blades: int = 1
    unsigned: bool = False
    modalities: frozenset[Modality] = frozenset(["image"])

    @property
    def dim(self) -> int:
        """Number of scores of an image: one for each label."""
        return len(self.labels)

    @property
    def min_image_side(self) -> int | None:
        """Pixels that both sides of a decoded image must keep; None: full resolution."""
        return self.preprocessing.config.min_side

    def prepare_image(self, image: Image.Image) -> Pixels:
        """A decoded image as (3, S, S)."""
        return to_pixels(image, self.preprocessing.config)

    def embed_images(self, images: Pixels) -> Vectors:
        """Scores (B, L) of prepared images (B, 3, S, S)."""
        pixels = self.preprocessing.to_unit(torch.from_numpy(images).to(self.fabric.device))
        with torch.inference_mode(), self.fabric.autocast():
            logits = self.classifier.logits(self.preprocessing.normalise(pixels))
        scores: Vectors = logits.float().cpu().numpy()
        return scores

    def embed_texts(self, texts: Sequence[str]) -> TextEmbeddings:  # noqa: ARG002 - an argument of the protocol
        """Refuse: an image classifier reads no texts.

        Raises:
            MissingModalityError: Always.
        """
        raise MissingModalityError("text")

    def measure(self, split: Manifest, *, show_progress: bool = False) -> Scores:
        """The AUC of each label on a split.

        Raises:
            DataError: Too many images cannot be read, or the others leave nothing to tell apart.
        """
        scored = embed_manifest(
            self, split, batch_size=self.batch_size, texts=False, show_progress=show_progress
        )
        self.broken.update((rejection.line, rejection) for rejection in scored.skipped.items)
        truth = positives(scored.records, self.labels)
        areas = {
            label: area_under_roc(scored.image_vectors[:, column], truth[:, column])
            for column, label in enumerate(self.labels)
        }
        measured = {label: area for label, area in areas.items() if area is not None}
        if not measured:
            raise DataError(
                f"Of the images of {split.folder} that can be read, none have a label that others have not: "
                "mend the data."
            )
        counts = dict(zip(self.labels, truth.sum(axis=0).tolist(), strict=True))
        return Scores(measured, counts, len(scored.records))


def classify_images(recipe: ImageRecipe, data: Path, options: RunOptions) -> TaskResult[Scores]:
    """Train a classifier on an image encoder and measure the AUC of each label (ReCo, section 4.3).

    A model with pretrained weights brings its preprocessing unless the recipe names one. The global random
    generators are seeded.

    Raises:
        RecoquestError: Something that the user can mend; the message says what.
    """
    keep_freed_memory()
    if recipe.model is not None:
        given = recipe.preprocessing or ImagePreprocessingConfig()
        resolved = images_as_pretrained(given, recipe.model.pretrained, "preprocessing")
        recipe = recipe.model_copy(update={"preprocessing": resolved})
    with open_run(recipe, options) as run:
        tower, preprocessing, digest = build_start(recipe, load_pretrained=run.checkpoint is None)
        manifest = read_manifest(data, max_rejected=recipe.data.max_rejected)
        splits = labelled_splits(manifest, recipe.data)
        classifier = ImageClassifier(tower, len(splits.labels), frozen=recipe.frozen)
        scorer = Scorer(classifier, preprocessing, run.fabric, splits.labels, recipe.train.batch_size)
        broken = splits.train.rejections.continued(len(splits.train.records))
        images = open_images(
            Decoder(splits.train, preprocessing.whole() if recipe.augmentation.crops else preprocessing),
            broken,
            cache=recipe.data.cache_images,
            threads=recipe.data.workers,
            device=run.fabric.device,
            processes=run.processes,
            show_progress=run.show_progress,
        )
        with closing(images):
            records = [splits.train.records[row] for row in images.readable]
            if not records:
                raise DataError(f"No training image of {manifest.folder} can be read: mend the data.")
            # An epoch has every image once in random order; its first ones fill the last batch up.
            count = run.processes.count
            size = max(count, min(recipe.train.batch_size, len(records) // count * count))
            sampler = PairSampler(records, size, recipe.train.seed, text_unit=None, fill_up=True)
            targets = torch.from_numpy(positives(splits.train.records, splits.labels)).float()
            prepare = PixelPreparation(preprocessing, Augmentation(recipe.augmentation, recipe.train.seed))

            def inputs(batch: Batch, step: int) -> tuple[Tensor, Tensor]:
                batch, device = without_missing(batch, run.processes), run.fabric.device
                assert batch.items is not None
                pixels = prepare(batch.inputs.to(device), step)
                return pixels, targets[batch.items].to(device, non_blocking=True)

            prepare_batch_norm(run, classifier, smallest=size // count)
            run_task = ModuleTask(
                run=run,
                recipe=recipe,
                module=classifier,
                batches=BatchLoader(
                    sampler, images, None, rows=images.readable, training=True, processes=run.processes
                ),
                inputs=inputs,
                validate=lambda: scorer.measure(splits.val).figures,
                chosen_by=MEAN_AUC,
                fingerprint=splits.fingerprint + digest,
            )
            loop = run_task.fit()
        test = run_task.measured(lambda: scorer.measure(splits.test, show_progress=run.show_progress))
        unscored = Rejections.of(
            scorer.broken.values(),
            len(splits.val.records) + len(splits.test.records),
            f"the validation and test images of {splits.test.folder}",
        )
        rejected = len(run.report(manifest.rejections, broken, unscored))
        figures = {
            "task": recipe.task,
            "encoder": digest or None,
            "test": test.figures,
            "positives": test.positives,
        }
        parts = {"train": splits.train, "validation": splits.val, "test": splits.test}
        counts = {"examples": {name: len(part.records) for name, part in parts.items()}}
        return run_task.finish(loop, test, figures, counts, rejected)

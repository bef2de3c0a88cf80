"""A classifier's scores on a split, and the area under the ROC curve of each label."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from lightning_fabric import Fabric
from PIL import Image

from training.classification.images.model import ImageClassifier
from training.common.errors import DataError, MissingModalityError
from training.common.manifest import Manifest, Rejection
from training.data.labels import positives
from training.evaluation.auc import area_under_roc
from training.evaluation.embedding import EmbeddedTexts, embed_manifest
from training.evaluation.similarity import Vectors
from training.models.config import Modality
from training.models.image_input import Pixels, to_pixels
from training.models.preprocessing import ImagePreprocessing

MEAN_AUC = "mean_auc"


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
    """Scores the images of a split as an encoder embeds them: decoded in threads, broken ones named.

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

    @property
    def dim(self) -> int:
        """Number of scores of an image: one for each label."""
        return len(self.labels)

    @property
    def modalities(self) -> frozenset[Modality]:
        """Images alone."""
        return frozenset(["image"])

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

    def embed_texts(self, texts: Sequence[str]) -> EmbeddedTexts:  # noqa: ARG002
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
        found = embed_manifest(
            self,
            split,
            batch_size=self.batch_size,
            texts=False,
            show_progress=show_progress,
        )
        self.broken.update((rejection.line, rejection) for rejection in found.skipped.items)
        truth = positives(found.records, self.labels)
        areas = {
            label: area_under_roc(found.image_vectors[:, column], truth[:, column])
            for column, label in enumerate(self.labels)
        }
        measured = {label: area for label, area in areas.items() if area is not None}
        if not measured:
            raise DataError(
                f"Of the images of {split.folder} that can be read, none have a label that others have not: "
                "mend the data."
            )
        return Scores(
            auc=measured,
            positives=dict(zip(self.labels, truth.sum(axis=0).tolist(), strict=True)),
            images=len(found.records),
        )

"""An image classifier: an image tower and one linear layer behind its pooled feature."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from training.classification.images.config import ImageRecipe
from training.common.errors import RecipeError
from training.models.config import ImagePreprocessingConfig
from training.models.encoder import load_image_tower
from training.models.image_towers import ImageTower, build_image_tower
from training.models.preprocessing import ImagePreprocessing
from training.tasks.problem import TaskModule


class ImageClassifier(TaskModule):
    """Predicts labels independently of each other (multi-label).

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


@dataclass(frozen=True)
class Start:
    """Initial encoder of a classifier.

    Attributes:
        tower: Image tower.
        preprocessing: Preprocessing of its images.
        digest: Digest of the bundle; empty without one.
    """

    tower: ImageTower
    preprocessing: ImagePreprocessing
    digest: str = ""


def build_start(recipe: ImageRecipe, *, load_pretrained: bool) -> Start:
    """The tower and the preprocessing that a recipe names.

    Args:
        recipe: With an encoder or a model.
        load_pretrained: Load the weights that the model names; False: only the architecture.

    Raises:
        RecipeError: The recipe names neither, or tower and images do not fit.
        BundleError: The bundle cannot be used.
    """
    if recipe.encoder is not None:
        tower, info = load_image_tower(Path(recipe.encoder).expanduser())
        return Start(tower, ImagePreprocessing(info.preprocessing.image), info.digest)
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
    return Start(tower, ImagePreprocessing(config))

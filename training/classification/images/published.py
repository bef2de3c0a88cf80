"""Results of ReCo's table 2 on CheXpert: mean AUC in percent."""

from collections.abc import Mapping
from types import MappingProxyType

from training.classification.images.config import ImageRecipe

CHEXPERT_LABELS = (
    "Atelectasis",
    "Cardiomegaly",
    "Edema",
    "Fracture",
    "No Finding",
    "Pleural Effusion",
    "Pneumonia",
    "Pneumothorax",
)
_SHARES = (0.01, 0.1, 1.0)
# Values in the order of `_SHARES`.
_LINEAR: Mapping[str, tuple[float, float, float]] = MappingProxyType(
    {
        "random weights, by ConVIRT": (58.2, 63.7, 66.2),
        "ImageNet, by ConVIRT": (75.7, 79.7, 81.0),
        "ConVIRT": (85.9, 86.8, 87.3),
        "ImageNet, by ReCo": (69.90, 74.13, 77.43),
        "InfoNCE": (86.65, 88.25, 88.38),
        "ReCo": (86.90, 88.28, 88.57),
    }
)
_FINETUNED: Mapping[str, tuple[float, float, float]] = MappingProxyType(
    {
        "random weights, by ConVIRT": (70.4, 81.1, 85.8),
        "ImageNet, by ConVIRT": (80.1, 84.8, 87.6),
        "ConVIRT": (87.0, 88.1, 88.1),
        "ImageNet, by ReCo": (74.90, 82.98, 87.37),
        "InfoNCE": (87.38, 88.30, 88.55),
        "ReCo": (87.07, 88.33, 88.58),
    }
)


def published(recipe: ImageRecipe) -> dict[str, float]:
    """The mean AUC of each row for a protocol and share; empty for other labels, splits or shares."""
    data = recipe.data
    of_chexpert = data.labels is not None and set(data.labels) == set(CHEXPERT_LABELS)
    if not of_chexpert or data.test_split != "val" or data.share not in _SHARES:
        return {}
    rows = _LINEAR if recipe.frozen else _FINETUNED
    return {row: figures[_SHARES.index(data.share)] for row, figures in rows.items()}

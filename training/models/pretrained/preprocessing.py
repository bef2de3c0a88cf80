"""The image preprocessing that a pretrained model was trained with."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import transformers

from training.common.errors import RecipeError
from training.imaging.resizing import Filter
from training.models.config import ImagePreprocessingConfig
from training.models.pretrained.architecture import quiet
from training.models.pretrained.folder import read_json

_FOLLOWED: Final = frozenset(
    {
        "BitImageProcessor",
        "CLIPImageProcessor",
        "ChineseCLIPImageProcessor",
        "ConvNextImageProcessor",
        "DINOv3ViTImageProcessor",
        "EfficientNetImageProcessor",
        "MobileNetV2ImageProcessor",
        "SiglipImageProcessor",
        "ViTImageProcessor",
    }
)
_STEPS: Final = frozenset({"do_resize", "do_center_crop", "do_rescale", "do_normalize", "do_convert_rgb"})
# Filters by Pillow's numbers.
_FILTERS: Final[Mapping[int, Filter]] = {
    0: "nearest",
    1: "lanczos",
    2: "bilinear",
    3: "bicubic",
    4: "box",
    5: "hamming",
}
# From this size, ConvNeXt's processor stretches images instead of cropping.
_STRETCHED_FROM: Final = 384
_FILE: Final = "preprocessor_config.json"
_NESTED_FILE: Final = "processor_config.json"
# No encoder's images are nearly as large.
_LARGEST: Final = 4096


def image_processor(folder: Path) -> Any:
    """The Pillow-based image processor that transformers loads from a folder.

    Raises:
        RecipeError: The folder has none, or one with unsupported steps.
    """
    auto: Any = transformers.AutoImageProcessor
    try:
        with quiet():
            processor = auto.from_pretrained(
                folder, backend="pil", local_files_only=True, trust_remote_code=False
            )
    except ImportError:
        # DINOv3's processor needs torchvision; ViT's does the same with fewer bits.
        processor = transformers.ViTImageProcessorPil.from_dict(_dinov3(folder))
    except (OSError, ValueError) as error:
        there = any((folder / name).is_file() for name in (_FILE, _NESTED_FILE))
        raise RecipeError(
            f"{folder} does not say how images are prepared: put the model's {_FILE} there."
            + (f" ({error})" if there else "")
        ) from error
    name = type(processor).__name__.removesuffix("Pil")
    if name not in _FOLLOWED:
        raise RecipeError(f"{folder} prepares images by {name}, which is not followed here.")
    return processor


def _dinov3(folder: Path) -> dict[str, Any]:
    nested = folder / _NESTED_FILE
    content = read_json(nested).get("image_processor") if nested.is_file() else None
    content = content or read_json(folder / _FILE)
    name = str(content.get("image_processor_type", "")).removesuffix("Fast")
    if name != "DINOv3ViTImageProcessor":
        raise RecipeError(f"{folder} prepares images by {name}, which is not followed here.")
    defaults = {"size": {"height": 224, "width": 224}, "resample": 2}
    statistics = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
    return {**defaults, **statistics, **content, "image_processor_type": "ViTImageProcessor"}


def image_preprocessing(folder: Path, size: int | None = None) -> ImagePreprocessingConfig:
    """A pretrained model's image preprocessing, for another side in pixels if `size` is given.

    Raises:
        RecipeError: The folder doesn't describe it, or describes unsupported steps.
    """
    settings: Mapping[str, Any] = image_processor(folder).to_dict()
    others = sorted(step for step in settings if step.startswith(("do_", "rescale_off")) and settings[step])
    unknown = [step for step in others if step not in _STEPS]
    if unknown:
        raise RecipeError(f"The image processor in {folder} has {unknown[0]}, which is not followed here.")
    if not settings.get("do_resize"):
        raise RecipeError(f"The image processor in {folder} does not resize: images have no common size.")
    if settings["resample"] not in _FILTERS:
        raise RecipeError(f"The image processor in {folder} resizes with an unknown filter.")
    square = _square(settings, folder)
    if size is not None:
        # A crop keeps the same share.
        if "resize_to" in square:
            square["resize_to"] = round(square["resize_to"] * size / square["size"])
        square["size"] = size
    if max(square["size"], square.get("resize_to", 0)) > _LARGEST:
        raise RecipeError(f"The image processor in {folder} resizes to more than {_LARGEST} pixels.")
    return ImagePreprocessingConfig.model_validate(
        {**square, **_statistics(settings, folder), "filter": _FILTERS[settings["resample"]]}
    )


def _square(settings: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Settings of resizing."""
    target = settings["size"]
    crop = settings["crop_size"] if settings.get("do_center_crop") else None
    if crop is not None and crop["height"] != crop["width"]:
        raise RecipeError(f"The image processor in {folder} crops to {crop}, which is not a square.")
    if set(target) == {"height", "width"} and target["height"] == target["width"]:
        square = {"size": target["height"], "resize": "squash"}
        fits = crop is None or crop["height"] == square["size"]
    elif set(target) == {"shortest_edge"} and "crop_pct" in settings:
        edge = target["shortest_edge"]
        square = {"size": edge, "resize": "squash"}
        if edge < _STRETCHED_FROM:
            kept = int(edge / settings["crop_pct"])
            square = {"size": edge, "resize": "shortest_edge", "resize_to": kept}
        fits = crop is None
    elif set(target) == {"shortest_edge"} and crop is not None:
        square = {"size": crop["height"], "resize": "shortest_edge", "resize_to": target["shortest_edge"]}
        fits = crop["height"] <= target["shortest_edge"]
    else:
        raise RecipeError(f"The image processor in {folder} resizes to {target}, which gives no squares.")
    if not fits:
        raise RecipeError(
            f"The image processor in {folder} resizes to {target} and crops to {crop}, which is not followed "
            "here."
        )
    return square


def _statistics(settings: Mapping[str, Any], folder: Path) -> dict[str, Sequence[float]]:
    """Mean and standard deviation of pixels from 0 to 1."""
    factor = settings["rescale_factor"] if settings.get("do_rescale") else 1.0
    unit = 1.0 if math.isclose(255 * factor, 1.0, rel_tol=1e-9) else 255 * factor
    mean: Sequence[float] = (0.0,) * 3
    std: Sequence[float] = (1.0,) * 3
    if settings.get("do_normalize"):
        mean, std = settings.get("image_mean") or (), settings.get("image_std") or ()
        if settings.get("include_top"):
            # EfficientNet divides by the deviation twice.
            std = [value * value for value in std]
    if len(mean) != 3 or len(std) != 3 or 0 in std:
        raise RecipeError(f"The image processor in {folder} has no mean and deviation of three colours.")
    return {"mean": [value / unit for value in mean], "std": [value / unit for value in std]}


def describes_images(folder: Path) -> bool:
    """Whether a folder describes image preprocessing."""
    return any((folder / name).is_file() for name in (_FILE, _NESTED_FILE))

"""Read published encoders of transformers: towers, heads and preprocessing."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, get_args

from training.common.errors import RecipeError
from training.models.bundle import DIGEST_FILE
from training.models.config import (
    DualEncoderConfig,
    HeadConfig,
    ImageArchitecture,
    ImageTowerConfig,
    PreprocessingConfig,
    TextPreprocessingConfig,
    TextTowerConfig,
)
from training.models.dual_encoder import DualEncoder
from training.models.features import PretrainedLogits
from training.models.image_towers import ImageTower, build_image_tower, check_image_size
from training.models.preprocessing import Preprocessing
from training.models.pretrained.architecture import COMPOSITES, TEXT_PART, VISION_PART, read_logits
from training.models.pretrained.folder import read_json, tensor_names
from training.models.pretrained.preprocessing import image_preprocessing
from training.models.pretrained.tokens import converted, has_tokenizer, transformers_tokenizer
from training.models.text_input import Tokenizer
from training.models.text_towers import TextTower, build_text_tower
from training.models.tower import Tower
from training.models.transformers_backbones import PROJECTED_POOLING, TEXT_TYPES

# Well-known text-only model types without a tower here.
_NO_TEXT_TOWERS: Final = frozenset({"camembert", "mpnet", "xlm-roberta"})


@dataclass(frozen=True)
class Published:
    """A published encoder on the CPU, and how it makes logits if it has a text tower."""

    model: DualEncoder
    preprocessing: Preprocessing
    logits: PretrainedLogits | None


def read_published(folder: Path, size: int | None = None) -> Published:
    """Read an encoder of transformers from its folder; without a tokenizer, only its image tower.

    `size` is the image side in pixels, for towers that accept any.

    Raises:
        RecipeError: The folder contains no such encoder, or an unsupported one.
    """
    if (folder / DIGEST_FILE).is_file():
        raise RecipeError(
            f"{folder} is a bundle of recoquest already: index images with it by `recoquest index NAME "
            f"--bundle {folder} --data FOLDER`."
        )
    kind = read_json(folder / "config.json").get("model_type")
    if not isinstance(kind, str):
        raise RecipeError(
            f"The config.json in {folder} names no model_type: is it the folder of a model of transformers?"
        )
    parts = COMPOSITES.get(kind)
    if parts is None:
        _check_images(kind, folder)
    # Fail fast, before the weights are read.
    image_input = image_preprocessing(folder, size)
    pretrained = None if parts is None or not has_tokenizer(folder) else transformers_tokenizer(folder)
    image = _image_tower(kind if parts is None else parts[VISION_PART], folder)
    if image.backbone.options.get("vision_use_head") is False:
        raise RecipeError(
            f"{folder} has an image tower without the head that makes one vector of an image "
            "(vision_use_head is false in its config.json), so its images have no vectors to search by: "
            "choose one with that head, or train from this one with `recoquest train` and "
            "model.image.pretrained."
        )
    demanded, prepared = image.backbone.image_size, image_input.size
    if size is not None and demanded is None and image.backbone.size_multiple == 1:
        raise RecipeError("A size of images can be given to DINOv2 and DINOv3 alone: leave --image-size out.")
    if size is None and demanded not in (None, prepared):
        raise RecipeError(
            f"{folder} prepares images of {prepared} pixels, but its image tower takes {demanded}: "
            "its files are not those of one model."
        )
    check_image_size(image.backbone, prepared, "--image-size")
    if parts is None or pretrained is None:
        preprocessing = PreprocessingConfig(image=image_input)
        return Published(_dual_encoder(image, None, folder), Preprocessing(preprocessing, None), None)
    tokenizer = converted(pretrained, folder)
    text = _text_tower(parts[TEXT_PART], folder, tokenizer)
    limit = min(int(pretrained.model_max_length), text.backbone.max_tokens)
    preprocessing = PreprocessingConfig(image=image_input, text=TextPreprocessingConfig(max_tokens=limit))
    model = _dual_encoder(image, text, folder)
    return Published(model, Preprocessing(preprocessing, tokenizer), read_logits(folder))


def _check_images(kind: str, folder: Path) -> None:
    """Check that a model type is an image encoder."""
    if kind == "siglip2":
        raise RecipeError(
            f"{folder} is a NaFlex model, which takes images of any shape as patches: choose one of a fixed "
            "size, such as google/siglip2-base-patch16-224."
        )
    if kind in _NO_TEXT_TOWERS:
        raise RecipeError(
            f"{folder} holds a {kind}, which reads texts alone, and recoquest trains no text tower of that "
            f"type: choose a model of images and texts ({', '.join(COMPOSITES)})."
        )
    if kind in TEXT_TYPES:
        raise RecipeError(
            f"{folder} holds a {kind}, which reads texts alone. An image and a text encoder that were "
            "trained apart have two spaces, and neither finds the other: train them together with "
            "`recoquest train`, model.image.pretrained and model.text.pretrained."
        )
    kinds = sorted(set(get_args(ImageArchitecture)) - {"clip_resnet"})
    if kind not in kinds:
        raise RecipeError(
            f"{folder} holds a model of type {kind!r}: choose one of {', '.join([*COMPOSITES, *kinds])}."
        )


def _image_tower(architecture: Any, folder: Path) -> ImageTower:
    projected = architecture == "clip_vision_model" and "visual_projection.weight" in tensor_names(folder)
    config = ImageTowerConfig(architecture=architecture, pretrained=str(folder), head=_head(projected))
    return build_image_tower(config, load_pretrained=True)


def _text_tower(architecture: Any, folder: Path, tokenizer: Tokenizer) -> TextTower:
    config = TextTowerConfig(
        architecture=architecture,
        pretrained=str(folder),
        pooling=PROJECTED_POOLING[architecture],
        head=_head(architecture != "siglip_text_model"),
    )
    return build_text_tower(config, tokenizer, load_pretrained=True)


def _head(projected: bool) -> HeadConfig:
    return HeadConfig(kind="linear" if projected else "identity")


def _dual_encoder(image: ImageTower, text: TextTower | None, folder: Path) -> DualEncoder:
    """Towers with the published projections, or without any."""
    widths = {_width(tower, tower.config.head, folder) for tower in (image, text) if tower is not None}
    if len(widths) > 1:
        raise RecipeError(f"The image and the text tower in {folder} give vectors of different widths.")
    config = DualEncoderConfig(
        image=image.config, text=None if text is None else text.config, dim=widths.pop()
    )
    return DualEncoder(config, image, text)


def _width(tower: Tower, head: HeadConfig, folder: Path) -> int:
    if head.kind == "identity":
        return tower.width
    if tower.projection is None:
        raise RecipeError(f"{folder} lacks the projection of a tower: it is no whole model.")
    return len(tower.projection.weight)

"""Architecture and weights of a pretrained model, as a transformers model."""

import json
import math
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import torch
import transformers
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from transformers.utils import logging as transformers_logging

from training.common.errors import RecipeError
from training.models.features import PretrainedLogits
from training.models.pretrained.folder import read_json, read_tensors
from training.models.tower import Projection

_DERIVED = {"stage_names", "out_features", "out_indices"}
# Image-text model types, and the architectures of their parts.
VISION_PART: Final = "vision_config"
TEXT_PART: Final = "text_config"
COMPOSITES: Final[Mapping[str, Mapping[str, str]]] = {
    "clip": {VISION_PART: "clip_vision_model", TEXT_PART: "clip_text_model"},
    "metaclip_2": {VISION_PART: "clip_vision_model", TEXT_PART: "clip_text_model"},
    "altclip": {VISION_PART: "clip_vision_model", TEXT_PART: "altclip_text_model"},
    "chinese_clip": {VISION_PART: "clip_vision_model", TEXT_PART: "bert"},
    "siglip": {VISION_PART: "siglip_vision_model", TEXT_PART: "siglip_text_model"},
}


def read_projection(folder: Path, name: str) -> Projection | None:
    """A projection without bias, stored under `name` in the folder's weights; None if there is none."""
    weight = read_tensors(folder, prefixes=[name]).get(name)
    return None if weight is None else Projection(weight)


def read_logits(folder: Path) -> PretrainedLogits | None:
    """Temperature (-log of it is `logit_scale`) and bias of a pretrained model's logits, if it has any."""
    stored = read_tensors(folder, prefixes=["logit_scale", "logit_bias"])
    if "logit_scale" not in stored:
        return None
    bias = stored.get("logit_bias")
    return PretrainedLogits(
        math.exp(-stored["logit_scale"].item()), None if bias is None else float(bias.item())
    )


def architecture_options(config: "transformers.PreTrainedConfig") -> dict[str, Any]:
    """The options that determine the architecture; they rebuild the same configuration."""
    plain = json.loads(json.dumps(config.to_dict()))
    return {name: plain[name] for name in sorted(_option_names(type(config))) if name in plain}


def configuration(
    kind: type["transformers.PreTrainedConfig"], options: Mapping[str, Any]
) -> "transformers.PreTrainedConfig":
    """A configuration from options.

    Raises:
        RecipeError: An option is unknown or invalid.
    """
    names = _option_names(kind)
    unknown = sorted(set(options) - names)
    if unknown:
        raise RecipeError(
            f"{kind.model_type} has no option {unknown[0]!r}: choose among {', '.join(sorted(names))}."
        )
    try:
        return kind(**options)
    except (StrictDataclassError, TypeError, ValueError) as error:
        raise RecipeError(f"The options of {kind.model_type} do not fit: {error}") from error


def pretrained_configuration(
    kind: type["transformers.PreTrainedConfig"], folder: Path, types: Collection[str]
) -> "transformers.PreTrainedConfig":
    """The configuration in a folder; of an image-text model, that of the part of this kind.

    Raises:
        RecipeError: The folder contains another architecture.
    """
    content = read_json(folder / "config.json")
    stored = str(content.get("model_type"))
    if stored != kind.model_type:
        parts = COMPOSITES.get(stored, {})
        part = next((name for name, architecture in parts.items() if architecture == kind.model_type), None)
        if part is None:
            fitting = next((name for name in (stored, *parts.values()) if name in types), None)
            advice = (
                f", which no architecture fits: choose a pretrained model of one of "
                f"{', '.join(sorted(types))}, and set the architecture to it."
                if fitting is None
                else f": set the architecture to {fitting}, not {kind.model_type}."
            )
            raise RecipeError(f"{folder} holds a model of type {stored!r}{advice}")
        # transformers adds defaults and resolves former names of settings.
        auto: Any = transformers.AutoConfig
        try:
            with quiet():
                config = auto.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        except (OSError, StrictDataclassError, TypeError, ValueError) as error:
            raise RecipeError(f"{folder / 'config.json'} does not fit its type of models: {error}") from error
        content = config.to_dict()[part]
    names = _option_names(kind)
    return configuration(kind, {name: value for name, value in content.items() if name in names})


def load_pretrained(
    kind: type["transformers.PreTrainedModel"],
    config: "transformers.PreTrainedConfig",
    folder: Path,
    **settings: Any,
) -> "transformers.PreTrainedModel":
    """A transformers model with a folder's weights in float32.

    Raises:
        RecipeError: There is no safetensors file, or weights are missing.
    """
    loader: Any = kind
    renames = _renames(folder, config.model_type)
    try:
        with quiet():
            model, report = loader.from_pretrained(
                folder,
                config=config,
                key_mapping=renames,
                dtype=torch.float32,
                use_safetensors=True,
                local_files_only=True,
                output_loading_info=True,
                **settings,
            )
    except (OSError, RuntimeError, SafetensorError) as error:
        raise RecipeError(f"The weights in {folder} cannot be loaded: {error}") from error
    missing = sorted(report["missing_keys"])
    if missing:
        raise RecipeError(
            f"The weights in {folder} lack {len(missing)} tensors, {missing[0]} first: wrong model?"
        )
    loaded: transformers.PreTrainedModel = model
    return loaded


def _renames(folder: Path, architecture: str) -> dict[str, str] | None:
    """Patterns of former tensor names that an architecture's loader doesn't know, and their current names."""
    if read_json(folder / "config.json").get("model_type") not in ("altclip", "chinese_clip"):
        return None
    prefix = "vision_model" if architecture == "clip_vision_model" else "text_model"
    layers = {} if architecture == "bert" else {r"encoder\.layer\.": "encoder.layers."}
    return {rf"^{prefix}\.": "", **layers}


def _option_names(kind: type["transformers.PreTrainedConfig"]) -> set[str]:
    return set(kind().to_dict()) - set(transformers.PreTrainedConfig().to_dict()) - _DERIVED


@contextmanager
def quiet() -> Iterator[None]:
    """Silence transformers' progress bars and warnings, such as those about unused weights."""
    logging: Any = transformers_logging
    verbosity, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bar:
            logging.enable_progress_bar()

"""Architecture and weights of a pretrained model as a model of transformers."""

import json
import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

import torch
import transformers
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError

from training.common.errors import RecipeError
from training.models.logits import PretrainedLogits
from training.models.pretrained.folder import read_json, read_tensors
from training.models.pretrained.quiet import quiet
from training.models.tower import Projection

_DERIVED = {"stage_names", "out_features", "out_indices"}
# Types of models for images and texts, and the architecture of either part.
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
    """How the model in a folder makes logits: `logit_scale` is -log of a temperature; None without one."""
    stored = read_tensors(folder, prefixes=["logit_scale", "logit_bias"])
    if "logit_scale" not in stored:
        return None
    bias = stored.get("logit_bias")
    return PretrainedLogits(
        math.exp(-stored["logit_scale"].item()), None if bias is None else float(bias.item())
    )


def architecture_options(config: "transformers.PreTrainedConfig") -> dict[str, Any]:
    """Everything in a configuration that decides the architecture; it rebuilds the same configuration."""
    plain = json.loads(json.dumps(config.to_dict()))
    return {name: plain[name] for name in sorted(_option_names(type(config))) if name in plain}


def configuration(
    kind: type["transformers.PreTrainedConfig"], options: Mapping[str, Any]
) -> "transformers.PreTrainedConfig":
    """A configuration from options.

    Raises:
        RecipeError: An option is unknown to the architecture, or its value does not fit.
    """
    known = _option_names(kind)
    unknown = sorted(set(options) - known)
    if unknown:
        raise RecipeError(
            f"{kind.model_type} has no option {unknown[0]!r}: choose among {', '.join(sorted(known))}."
        )
    try:
        return kind(**options)
    except (StrictDataclassError, TypeError, ValueError) as error:
        raise RecipeError(f"The options of {kind.model_type} do not fit: {error}") from error


def pretrained_configuration(
    kind: type["transformers.PreTrainedConfig"], folder: Path, types: Collection[str]
) -> "transformers.PreTrainedConfig":
    """The configuration in a folder; of a model for images and texts, the part of this kind.

    Raises:
        RecipeError: The folder holds a model of another architecture.
    """
    content = read_json(folder / "config.json")
    found = str(content.get("model_type"))
    if found != kind.model_type:
        parts = COMPOSITES.get(found, {})
        part = next((name for name, architecture in parts.items() if architecture == kind.model_type), None)
        if part is None:
            raise RecipeError(_misfit(folder, found, kind.model_type, types))
        content = _composite(folder)[part]
    names = _option_names(kind)
    return configuration(kind, {name: value for name, value in content.items() if name in names})


def _misfit(folder: Path, found: str, wanted: str, types: Collection[str]) -> str:
    """Advice about a folder with a model of another type than the architecture that is set."""
    own = (found, *COMPOSITES.get(found, {}).values())
    fitting = next((name for name in own if name in types), None)
    if fitting is None:
        return (
            f"{folder} holds a model of type {found!r}, which no architecture fits: choose a pretrained "
            f"model of one of {', '.join(sorted(types))}, and set the architecture to it."
        )
    return f"{folder} holds a model of type {found!r}: set the architecture to {fitting}, not {wanted}."


def _composite(folder: Path) -> dict[str, Any]:
    """The settings of a model for images and texts, complete, from all the names that they once had."""
    auto: Any = transformers.AutoConfig
    try:
        with quiet():
            config = auto.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (OSError, StrictDataclassError, TypeError, ValueError) as error:
        raise RecipeError(f"{folder / 'config.json'} does not fit its type of models: {error}") from error
    settings: dict[str, Any] = config.to_dict()
    return settings


def load_pretrained(
    kind: type["transformers.PreTrainedModel"],
    config: "transformers.PreTrainedConfig",
    folder: Path,
    **settings: Any,
) -> "transformers.PreTrainedModel":
    """A transformers model with a folder's weights in float32.

    Raises:
        RecipeError: No safetensors file, or one that lacks weights of this architecture.
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
    """Patterns of tensor names that an architecture's loader does not know, and its own names."""
    if read_json(folder / "config.json").get("model_type") not in ("altclip", "chinese_clip"):
        return None
    prefix = "vision_model" if architecture == "clip_vision_model" else "text_model"
    layers = {} if architecture == "bert" else {r"encoder\.layer\.": "encoder.layers."}
    return {rf"^{prefix}\.": "", **layers}


def _option_names(kind: type["transformers.PreTrainedConfig"]) -> set[str]:
    return set(kind().to_dict()) - set(transformers.PreTrainedConfig().to_dict()) - _DERIVED

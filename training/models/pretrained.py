"""Pretrained models: their folder, their architecture, their weights. Safetensors only, never code."""

import json
import math
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
from safetensors import SafetensorError, safe_open
from torch import Tensor
from transformers.utils import logging as transformers_logging

from training.errors import RecipeError
from training.models.tower import Projection

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
_NEEDED = ["*.json", "*.safetensors", "*.txt", "*.model"]
_DERIVED = {"stage_names", "out_features", "out_indices"}


def local_folder(pretrained: str) -> Path:
    """The folder of a pretrained model; a hub name is downloaded once and cached.

    Raises:
        RecipeError: There is no such folder and no such model on the hub, or the hub cannot be reached.
    """
    folder = Path(pretrained).expanduser()
    if folder.is_dir():
        return folder
    if not _HUB_NAME.fullmatch(pretrained):
        raise RecipeError(
            f"There is no folder {pretrained}: give the folder of a pretrained model or a hub name."
        )
    try:
        return Path(snapshot_download(pretrained, allow_patterns=_NEEDED, ignore_patterns=["*/*"]))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise RecipeError(
            f"{pretrained} is neither a folder nor a model that could be fetched from the hub: {error}"
        ) from error


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a pretrained model's folder.

    Raises:
        RecipeError: The file is missing or not a JSON object.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RecipeError(f"{path} cannot be read: is the folder a pretrained model? ({error})") from error
    if not isinstance(content, dict):
        raise RecipeError(f"{path} is not a JSON object: is the folder a pretrained model?")
    return content


def read_tensors(folder: Path, *, prefixes: Collection[str] = ("",)) -> dict[str, Tensor]:
    """All tensors of a folder's safetensors files whose name starts with one of the prefixes, as float32.

    Raises:
        RecipeError: The folder has no safetensors file, or a damaged one.
    """
    tensors: dict[str, Tensor] = {}
    for file in _weight_files(folder):
        with _opened(file) as content:
            names = [name for name in set(content.keys()) if name.startswith(tuple(prefixes))]
            tensors |= {name: content.get_tensor(name) for name in names}
    return {
        name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in tensors.items()
    }


def _weight_files(folder: Path) -> list[Path]:
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise RecipeError(
            f"No safetensors file in {folder}: convert the weights; pickled files are never loaded."
        )
    return files


@contextmanager
def _opened(file: Path) -> Iterator[Any]:
    try:
        with safe_open(file, framework="pt") as content:
            yield content
    except SafetensorError as error:
        raise RecipeError(f"{file} is damaged: fetch it again. ({error})") from error


def tensor_names(folder: Path) -> set[str]:
    """Names of all tensors in a folder's safetensors files."""
    names: set[str] = set()
    for file in _weight_files(folder):
        with _opened(file) as content:
            names |= set(content.keys())
    return names


def read_projection(folder: Path, name: str) -> Projection | None:
    """A projection without bias, stored under `name` in the folder's weights; None if there is none."""
    weight = read_tensors(folder, prefixes=[name]).get(name)
    return None if weight is None else Projection(weight)


def read_temperature(folder: Path) -> float | None:
    """The temperature of CLIP's softmax, of which weights hold -log as `logit_scale`; None without one."""
    stored = read_tensors(folder, prefixes=["logit_scale"]).get("logit_scale")
    return None if stored is None else math.exp(-stored.item())


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
    except (TypeError, ValueError) as error:
        raise RecipeError(f"The options of {kind.model_type} do not fit: {error}") from error


def pretrained_configuration(
    kind: type["transformers.PreTrainedConfig"], folder: Path
) -> "transformers.PreTrainedConfig":
    """The configuration in a folder; of a model for images and texts, the part of this kind.

    Raises:
        RecipeError: The folder holds a model of another architecture.
    """
    content = read_json(folder / "config.json")
    found = content.get("model_type")
    part = content.get(kind.base_config_key) if kind.base_config_key else None
    composite = kind.model_type.split("_")[0]
    if found == composite and isinstance(part, dict):
        content = part
    elif found != kind.model_type:
        raise RecipeError(f"{folder} holds a model of type {found!r}: choose the architecture that fits it.")
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
        RecipeError: No safetensors file, or one that lacks weights of this architecture.
    """
    loader: Any = kind
    try:
        with _quiet():
            model, report = loader.from_pretrained(
                folder,
                config=config,
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


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep transformers from reporting each weight that a tower leaves out; missing ones are refused here."""
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


def _option_names(kind: type["transformers.PreTrainedConfig"]) -> set[str]:
    return set(kind().to_dict()) - set(transformers.PreTrainedConfig().to_dict()) - _DERIVED

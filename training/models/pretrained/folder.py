"""The folder of a pretrained model and the tensors in it."""

import json
import re
import shlex
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from training.errors import RecipeError
from training.models.pretrained.hub import hub_folder

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
# docs/pretrained.md has the same command.
_TO_SAFETENSORS = (
    "import sys, transformers as t; m = sys.argv[1]; "
    "getattr(t, t.AutoConfig.from_pretrained(m).architectures[0]).from_pretrained(m).save_pretrained(m)"
)


def local_folder(pretrained: str) -> Path:
    """The folder of a pretrained model; a hub name is downloaded once and cached.

    Raises:
        RecipeError: There is no such folder and no such model with safetensors on the hub, or the hub cannot
            be reached.
    """
    folder = Path(pretrained).expanduser()
    if folder.is_dir():
        return folder
    if folder.is_file():
        raise RecipeError(f"{pretrained} is a file: give the folder that it lies in.")
    if not _HUB_NAME.fullmatch(pretrained):
        raise RecipeError(
            f"There is no folder {pretrained}: give the folder of a pretrained model or a hub name."
        )
    return hub_folder(pretrained)


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
    """The files that transformers reads, or all where it reads none, as of open_clip."""
    single, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if single.is_file():
        return [single]
    if index.is_file():
        shards = read_json(index).get("weight_map")
        if not isinstance(shards, dict) or not shards:
            raise RecipeError(f"{index} names no files: fetch it again.")
        return sorted({folder / str(name) for name in shards.values()})
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise RecipeError(
            f"No safetensors file in {folder}, and pickled weights are never loaded: {_advice(folder)}."
        )
    return files


def _advice(folder: Path) -> str:
    """The way to safetensors, by the files that a folder has."""
    if any(folder.glob("pytorch_model*.bin")):
        return f'write them as safetensors by `python -c "{_TO_SAFETENSORS}" {shlex.quote(str(folder))}`'
    if any(folder.glob("open_clip*.bin")):
        return "write them as safetensors by the command under `open_clip` in docs/published-encoders.md"
    return "put the model's safetensors there, or convert its weights as docs/pretrained.md says"


@contextmanager
def _opened(file: Path) -> Iterator[Any]:
    try:
        with safe_open(file, framework="pt") as content:
            yield content
    except (OSError, SafetensorError) as error:
        raise RecipeError(f"{file} is damaged: fetch it again. ({error})") from error


def tensor_names(folder: Path) -> set[str]:
    """Names of all tensors in a folder's safetensors files."""
    names: set[str] = set()
    for file in _weight_files(folder):
        with _opened(file) as content:
            names |= set(content.keys())
    return names

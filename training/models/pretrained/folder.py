"""The folder of a pretrained model and the tensors in it."""

import json
import logging
import re
import secrets
import shlex
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from itertools import islice
from pathlib import Path
from typing import Any, Final

from huggingface_hub import HfApi, cached_assets_path, snapshot_download
from huggingface_hub.errors import HFValidationError
from huggingface_hub.hf_api import ModelInfo
from huggingface_hub.utils import httpx  # type: ignore[attr-defined]
from safetensors import SafetensorError, safe_open
from torch import Tensor

from training.common.errors import RecipeError

_log = logging.getLogger(__name__)
_WEIGHTS: Final = ("*.safetensors", "*.safetensors.index.json")
# A folder with one of these files has all weights.
_LAST: Final = ("model.safetensors", "model.safetensors.index.json")
_NEEDED: Final = ("*.json", "*.safetensors", "*.txt", "*.model")
_PICKLED: Final = "pytorch_model*.bin"
# Author of the hub's automatic pull requests that convert pickled weights to safetensors.
_CONVERTER: Final = "SFconvertbot"
_MOST_REQUESTS: Final = 20
_UNREACHED: Final = (httpx.HTTPError, HFValidationError, OSError)
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
# Same command as in docs/research/pretrained.md.
_TO_SAFETENSORS = (
    "import sys, transformers as t; m = sys.argv[1]; "
    "getattr(t, t.AutoConfig.from_pretrained(m).architectures[0]).from_pretrained(m).save_pretrained(m)"
)


def local_folder(pretrained: str) -> Path:
    """The folder of a pretrained model; models of the hub are downloaded once and cached.

    Raises:
        RecipeError: There is no such folder or model with safetensors, or the hub can't be reached.
    """
    folder = Path(pretrained).expanduser()
    if folder.is_dir():
        return folder
    if folder.is_file():
        raise RecipeError(f"{pretrained} is a file: give the folder that it is in.")
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
    """The weight files that transformers would load; all if it wouldn't load any, as for open_clip."""
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
    """Advice on how to get safetensors, given the files in a folder."""
    if any(folder.glob(_PICKLED)):
        return f'write them as safetensors by `python -c "{_TO_SAFETENSORS}" {shlex.quote(str(folder))}`'
    if any(folder.glob("open_clip*.bin")):
        return "write them as safetensors by the script under `Pickled weights` in docs/guides/encoders.md"
    return "put the model's safetensors there, or see `Pickled weights` in docs/guides/encoders.md"


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


def hub_folder(name: str) -> Path:
    """The folder of a model of the hub, downloaded once and cached.

    If the main revision has no safetensors, weights come from the hub's own conversion, an open pull request
    of its bot from the same pickled files; other files come from the main revision. The conversion is looked
    up once per commit of main, so that the weights stay the same and later runs need no network.

    Raises:
        RecipeError: There is no such model, it has no safetensors, or the hub can't be reached.
    """
    try:
        main = _snapshot(name, "main", _NEEDED)
    except _UNREACHED as error:
        raise RecipeError(
            f"{name} is neither a folder nor a model that could be fetched from the hub: {error}"
        ) from error
    if any(main.glob("*.safetensors")):
        return main
    try:
        joined = cached_assets_path("recoquest", namespace=name, subfolder=main.name)
        if not _is_whole(joined):
            _link(joined, main, _converted(name, main.name))
    except _UNREACHED as error:
        raise RecipeError(
            f"{name} has no safetensors on main, and the hub's conversion of its weights could not be "
            f"fetched: {error}"
        ) from error
    return joined


def _snapshot(name: str, revision: str, patterns: Sequence[str]) -> Path:
    return Path(
        snapshot_download(name, revision=revision, allow_patterns=list(patterns), ignore_patterns=["*/*"])
    )


def _converted(name: str, commit: str) -> Path:
    """The folder with the safetensors of the hub's conversion of a commit's pickled files."""
    api = HfApi()
    pickled = _pickled(api.model_info(name, revision=commit, files_metadata=True))
    for revision in _requests(api, name) if pickled else ():
        conversion = api.model_info(name, revision=revision, files_metadata=True)
        whole = any(file.rfilename in _LAST for file in conversion.siblings or [])
        if conversion.sha and _pickled(conversion) == pickled and whole:
            _log.warning(
                "%s has no safetensors on main: its weights are those of the hub's converter, %s, commit %s.",
                *(name, revision, conversion.sha),
            )
            return _snapshot(name, conversion.sha, _WEIGHTS)
    raise RecipeError(
        f"{name} has no safetensors on main, nor in an open pull request of the hub's converter, and pickled "
        "weights are never loaded: download and convert them by the commands under `Pickled weights` in "
        "docs/guides/encoders.md."
    )


def _requests(api: HfApi, name: str) -> Iterator[str]:
    """Revisions of the converter's open pull requests, latest first."""
    listed = api.get_repo_discussions(
        name, author=_CONVERTER, discussion_type="pull_request", discussion_status="open"
    )
    numbers = [
        request.num
        for request in islice(listed, _MOST_REQUESTS)
        if request.author == _CONVERTER and request.is_pull_request and request.status == "open"
    ]
    yield from (f"refs/pr/{number}" for number in sorted(numbers, reverse=True))


def _pickled(info: ModelInfo) -> dict[str, str]:
    """Digests of a revision's pickled weights by name, as far as the hub provides them."""
    files = info.siblings or []
    return {
        file.rfilename: file.blob_id for file in files if file.blob_id and fnmatch(file.rfilename, _PICKLED)
    }


def _link(folder: Path, main: Path, weights: Path) -> None:
    """Link one snapshot's weights and another's other files into a folder.

    Safe to run in several processes at once: the file that marks a complete folder is linked last.
    """
    others = [file for file in main.iterdir() if _is_any(file, _NEEDED) and not _is_any(file, _WEIGHTS)]
    files = [file for file in weights.iterdir() if _is_any(file, _WEIGHTS)]
    for file in (*others, *sorted(files, key=lambda file: file.name in _LAST)):
        link = folder / f".{secrets.token_hex(8)}"
        link.symlink_to(file)
        link.replace(folder / file.name)


def _is_whole(folder: Path) -> bool:
    """Whether a folder is complete and none of its links is broken."""
    files = [file for file in folder.iterdir() if not file.name.startswith(".")]
    return all(file.is_file() for file in files) and any(file.name in _LAST for file in files)


def _is_any(file: Path, patterns: Sequence[str]) -> bool:
    return any(fnmatch(file.name, pattern) for pattern in patterns)

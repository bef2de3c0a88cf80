"""Models of the Hugging Face hub, in folders of this machine."""

import logging
import secrets
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from itertools import islice
from pathlib import Path
from typing import Final

from huggingface_hub import HfApi, cached_assets_path, snapshot_download
from huggingface_hub.errors import HFValidationError
from huggingface_hub.hf_api import ModelInfo
from huggingface_hub.utils import httpx  # type: ignore[attr-defined]

from training.errors import RecipeError

_log = logging.getLogger(__name__)

_WEIGHTS: Final = ("*.safetensors", "*.safetensors.index.json")
# A folder with one of these has all its weights.
_LAST: Final = ("model.safetensors", "model.safetensors.index.json")
_NEEDED: Final = ("*.json", "*.safetensors", "*.txt", "*.model")
_PICKLED: Final = "pytorch_model*.bin"
# Author of the pull requests by which the hub itself adds safetensors of pickled weights.
_CONVERTER: Final = "SFconvertbot"
_MOST_REQUESTS: Final = 20
_UNREACHED: Final = (httpx.HTTPError, HFValidationError, OSError)


def hub_folder(name: str) -> Path:
    """The folder of a model of the hub, downloaded once and cached.

    Where the main revision has no safetensors, the weights are those of the hub's own conversion: an open
    pull request of its bot, made from the same pickled files. All else is of the main revision. A conversion
    is looked for once for each commit of main, so the weights stay the same and need no network again.

    Raises:
        RecipeError: There is no such model, it has no safetensors, or the hub cannot be reached.
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
        found = api.model_info(name, revision=revision, files_metadata=True)
        if found.sha and _pickled(found) == pickled and _has_weights(found):
            _log.warning(
                "%s has no safetensors on main: its weights are those of the hub's converter, %s, commit %s.",
                *(name, revision, found.sha),
            )
            return _snapshot(name, found.sha, _WEIGHTS)
    raise RecipeError(
        f"{name} has no safetensors on main, nor in an open pull request of the hub's converter, and pickled "
        "weights are never loaded: download and convert them by the commands under `Pickled weights` in "
        "docs/pretrained.md."
    )


def _requests(api: HfApi, name: str) -> Iterator[str]:
    """Revisions of the converter's open pull requests, the latest first."""
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
    """Digests of the pickled weights of a revision by name; without those that the hub does not tell."""
    files = info.siblings or []
    return {
        file.rfilename: file.blob_id for file in files if file.blob_id and fnmatch(file.rfilename, _PICKLED)
    }


def _has_weights(info: ModelInfo) -> bool:
    return any(file.rfilename in _LAST for file in info.siblings or [])


def _link(folder: Path, main: Path, weights: Path) -> None:
    """Fill a folder with links to the weights of one snapshot and all else of another.

    Several processes may do it at a time. The name that tells a whole folder comes last.
    """
    others = [file for file in main.iterdir() if _is_any(file, _NEEDED) and not _is_any(file, _WEIGHTS)]
    found = [file for file in weights.iterdir() if _is_any(file, _WEIGHTS)]
    for file in (*others, *sorted(found, key=lambda file: file.name in _LAST)):
        link = folder / f".{secrets.token_hex(8)}"
        link.symlink_to(file)
        link.replace(folder / file.name)


def _is_whole(folder: Path) -> bool:
    """Whether all links of a folder lead to files, and none is left to be made."""
    files = [file for file in folder.iterdir() if not file.name.startswith(".")]
    return all(file.is_file() for file in files) and any(file.name in _LAST for file in files)


def _is_any(file: Path, patterns: Sequence[str]) -> bool:
    return any(fnmatch(file.name, pattern) for pattern in patterns)

"""The bundle: a folder with everything that turns images and texts into vectors, and a digest over it."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors.torch import save_file

from training.atomic import atomic_folder
from training.errors import BundleError
from training.models.config import DualEncoderConfig, PreprocessingConfig
from training.models.dual_encoder import DualEncoder
from training.models.model_card import model_card
from training.models.preprocessing import Preprocessing

FORMAT_VERSION: Final = 1
CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
TOKENIZER_FILE = "tokenizer.json"
PREPROCESSING_FILE = "preprocessing.json"
_METRICS_FILE = "metrics.json"
_RECIPE_FILE = "recipe.yaml"
_CARD_FILE = "README.md"
_DIGEST_FILE = "digest.json"
_DECIDING = (CONFIG_FILE, WEIGHTS_FILE, PREPROCESSING_FILE)


@dataclass(frozen=True)
class BundleInfo:
    """What a bundle says about itself.

    Attributes:
        folder: Where it lies.
        name: Given by whoever made it.
        digest: SHA-256 over the files that decide a vector, in hexadecimal; not over metrics and card.
        dim: Width of the vectors.
        config: Of the encoder, without any reference to pretrained folders.
        preprocessing: Of images and texts.
        metrics: Measured when it was made, by name.
        recipe: The YAML that it was trained with; empty if none.
        created: Date and time, ISO 8601, UTC.
    """

    folder: Path
    name: str
    digest: str
    dim: int
    config: DualEncoderConfig
    preprocessing: PreprocessingConfig
    metrics: Mapping[str, float]
    recipe: str
    created: str


class _Seal(BaseModel):
    """Content of digest.json."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format_version: Literal[1] = FORMAT_VERSION
    name: str
    created: str
    digest: str = Field(pattern=r"^[0-9a-f]{64}$")
    files: dict[str, str]


def save_bundle(
    folder: Path,
    *,
    name: str,
    model: DualEncoder,
    preprocessing: Preprocessing,
    metrics: Mapping[str, float],
    recipe_yaml: str,
) -> BundleInfo:
    """Write a bundle beside `folder` and put it in that place when it is whole.

    Args:
        folder: Of the bundle; an older one is replaced.
        name: Shown by everything that uses it.
        model: The encoder; its weights are stored as float32.
        preprocessing: What the encoder was trained with.
        metrics: To be kept with it, by name.
        recipe_yaml: The resolved recipe.

    Raises:
        RecipeError: The encoder cannot take what the preprocessing makes.
        BundleError: The folder cannot be written.
    """
    model.check_preprocessing(preprocessing.config)
    created = datetime.now(UTC).isoformat(timespec="seconds")
    weights = {key: value.detach().cpu().contiguous() for key, value in model.state_dict().items()}
    folder = folder.absolute()
    try:
        with atomic_folder(folder, replace=True) as fresh:
            save_file(weights, fresh / WEIGHTS_FILE, metadata={"format": "pt"})
            _write_json(fresh / CONFIG_FILE, model.config.model_dump(mode="json"))
            _write_json(fresh / PREPROCESSING_FILE, preprocessing.config.model_dump(mode="json"))
            deciding: tuple[str, ...] = _DECIDING
            if model.config.text is not None:
                tokenizer = preprocessing.text.tokenizer.to_json()
                (fresh / TOKENIZER_FILE).write_text(tokenizer, encoding="utf-8")
                deciding = (*_DECIDING, TOKENIZER_FILE)
            _write_json(fresh / _METRICS_FILE, dict(metrics))
            (fresh / _RECIPE_FILE).write_text(recipe_yaml, encoding="utf-8")
            files = {file: _sha256(fresh / file) for file in deciding}
            seal = _Seal(name=name, created=created, digest=_digest(files), files=files)
            _write_json(fresh / _DIGEST_FILE, seal.model_dump(mode="json"))
            card = model_card(name, seal.digest, created, model.config, preprocessing.config, metrics)
            (fresh / _CARD_FILE).write_text(card, encoding="utf-8")
    except OSError as error:
        raise BundleError(f"The bundle cannot be written to {folder}: {error.strerror or error}.") from error
    return read_bundle(folder)


def read_bundle(folder: Path) -> BundleInfo:
    """Read what a bundle says about itself, after checking every file that decides a vector.

    Raises:
        BundleError: A file is missing or changed, or the bundle was made by a newer release.
    """
    folder = folder.absolute()
    seal = _read_seal(folder)
    for file in _DECIDING if TOKENIZER_FILE not in seal.files else (*_DECIDING, TOKENIZER_FILE):
        if _sha256(_existing(folder, file)) != seal.files.get(file):
            raise BundleError(
                f"{folder / file} is not the file that the bundle was made with: copy it again."
            )
    if _digest(seal.files) != seal.digest:
        raise BundleError(f"The digest of {folder} does not belong to its files: copy the bundle again.")
    try:
        config = DualEncoderConfig.model_validate_json(_existing(folder, CONFIG_FILE).read_bytes())
        preprocessing = PreprocessingConfig.model_validate_json(
            _existing(folder, PREPROCESSING_FILE).read_bytes()
        )
    except ValidationError as error:
        raise BundleError(
            f"The settings of {folder} are not valid: make the bundle again. ({error})"
        ) from error
    if config.text is not None and TOKENIZER_FILE not in seal.files:
        raise BundleError(f"{folder} reads texts but has no {TOKENIZER_FILE}: make the bundle again.")
    return BundleInfo(
        folder=folder,
        name=seal.name,
        digest=seal.digest,
        dim=config.vector_dim,
        config=config,
        preprocessing=preprocessing,
        metrics=_read_json(_existing(folder, _METRICS_FILE)),
        recipe=_existing(folder, _RECIPE_FILE).read_text(encoding="utf-8"),
        created=seal.created,
    )


def _read_seal(folder: Path) -> _Seal:
    if not folder.is_dir():
        raise BundleError(f"There is no bundle at {folder}: give the folder that training wrote.")
    content = _read_json(_existing(folder, _DIGEST_FILE))
    version = content.get("format_version")
    if isinstance(version, int) and version > FORMAT_VERSION:
        raise BundleError(
            f"{folder} has bundle format {version}, this release reads {FORMAT_VERSION}: update recoquest."
        )
    try:
        return _Seal.model_validate(content)
    except ValidationError as error:
        raise BundleError(
            f"{folder / _DIGEST_FILE} is not valid: copy the bundle again. ({error})"
        ) from error


def _existing(folder: Path, file: str) -> Path:
    path = folder / file
    if not path.is_file():
        raise BundleError(f"{folder} has no {file}, so it is no whole bundle: copy it again.")
    return path


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise BundleError(f"{path} is not valid JSON: copy the bundle again. ({error})") from error
    if not isinstance(content, dict):
        raise BundleError(f"{path} is not a JSON object: copy the bundle again.")
    return content


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest(files: Mapping[str, str]) -> str:
    lines = "".join(f"{name} {files[name]}\n" for name in sorted(files))
    return hashlib.sha256(lines.encode()).hexdigest()

"""The bundle: a folder with everything that turns images and texts into vectors, and a digest over it."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from training.common.errors import BundleError
from training.models.config import DualEncoderConfig, PreprocessingConfig
from training.models.inputs.tokenizer import Tokenizer

FORMAT_VERSION: Final = 1
CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
TOKENIZER_FILE = "tokenizer.json"
PREPROCESSING_FILE = "preprocessing.json"
METRICS_FILE = "metrics.json"
RECIPE_FILE = "recipe.yaml"
DIGEST_FILE = "digest.json"
DECIDING_FILES = (CONFIG_FILE, WEIGHTS_FILE, PREPROCESSING_FILE)


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


class Seal(BaseModel):
    """Content of digest.json: names, times, and the SHA-256 of each file that decides a vector."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format_version: Literal[1] = FORMAT_VERSION
    name: str
    created: str
    digest: str = Field(pattern=r"^[0-9a-f]{64}$")
    files: dict[str, str]


def read_bundle(folder: Path) -> BundleInfo:
    """Read what a bundle says about itself, after checking every file that decides a vector.

    Raises:
        BundleError: A file is missing or changed, or the bundle was made by a newer release.
    """
    folder = folder.absolute()
    seal = _read_seal(folder)
    for file in DECIDING_FILES if TOKENIZER_FILE not in seal.files else (*DECIDING_FILES, TOKENIZER_FILE):
        if file_sha256(_existing(folder, file)) != seal.files.get(file):
            raise BundleError(
                f"{folder / file} is not the file that the bundle was made with: copy it again."
            )
    if digest_of(seal.files) != seal.digest:
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
        metrics=_read_json(_existing(folder, METRICS_FILE)),
        recipe=_existing(folder, RECIPE_FILE).read_text(encoding="utf-8"),
        created=seal.created,
    )


def read_tokenizer(info: BundleInfo) -> Tokenizer | None:
    """Tokenizer of a bundle's text tower; None: it has none.

    Raises:
        BundleError: The file is no tokenizer.
    """
    if info.config.text is None:
        return None
    return Tokenizer.from_json((info.folder / TOKENIZER_FILE).read_text(encoding="utf-8"))


def _read_seal(folder: Path) -> Seal:
    if not folder.is_dir():
        raise BundleError(f"There is no bundle at {folder}: give the folder that training wrote.")
    content = _read_json(_existing(folder, DIGEST_FILE))
    version = content.get("format_version")
    if isinstance(version, int) and version > FORMAT_VERSION:
        raise BundleError(
            f"{folder} has bundle format {version}, this release reads {FORMAT_VERSION}: update recoquest."
        )
    try:
        return Seal.model_validate(content)
    except ValidationError as error:
        raise BundleError(f"{folder / DIGEST_FILE} is not valid: copy the bundle again. ({error})") from error


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


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_of(files: Mapping[str, str]) -> str:
    """Digest of a bundle whose files have these SHA-256."""
    lines = "".join(f"{name} {files[name]}\n" for name in sorted(files))
    return hashlib.sha256(lines.encode()).hexdigest()

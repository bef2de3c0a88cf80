"""The bundle: a folder with everything that turns images and texts into vectors, and a digest over it."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from training.common.atomic import atomic_folder
from training.common.errors import BundleError
from training.models.config import DualEncoderConfig, PreprocessingConfig
from training.models.text_input import Tokenizer

if TYPE_CHECKING:
    from training.models.dual_encoder import DualEncoder
    from training.models.preprocessing import Preprocessing

FORMAT_VERSION: Final = 1
CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
TOKENIZER_FILE = "tokenizer.json"
PREPROCESSING_FILE = "preprocessing.json"
METRICS_FILE = "metrics.json"
RECIPE_FILE = "recipe.yaml"
DIGEST_FILE = "digest.json"
DECIDING_FILES = (CONFIG_FILE, WEIGHTS_FILE, PREPROCESSING_FILE)
_CARD_FILE: Final = "README.md"


@dataclass(frozen=True)
class BundleInfo:
    """What a bundle says about itself.

    Attributes:
        digest: SHA-256 over the files that decide a vector, in hexadecimal; not over metrics and card.
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


def read_bundle(folder: Path | str) -> BundleInfo:
    """Read what a bundle says about itself, after checking every file that decides a vector.

    Raises:
        BundleError: A file is missing or changed, or the bundle was made by a newer release.
    """
    folder = Path(folder).absolute()
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


def save_bundle(
    folder: Path | str,
    *,
    name: str,
    model: "DualEncoder",
    preprocessing: "Preprocessing",
    metrics: Mapping[str, float],
    recipe_yaml: str,
) -> BundleInfo:
    """Write a bundle to a temporary folder that replaces `folder`, an older bundle, when it is complete.

    Raises:
        RecipeError: The encoder cannot take what the preprocessing makes.
        BundleError: The folder cannot be written, or has something other than a bundle.
    """
    # Bundles are read without torch.
    from safetensors.torch import save_file

    model.check_preprocessing(preprocessing.config)
    created = datetime.now(UTC).isoformat(timespec="seconds")
    weights = {key: value.detach().cpu().contiguous() for key, value in model.state_dict().items()}
    folder = Path(folder).absolute()
    if folder.is_dir() and any(folder.iterdir()) and not (folder / DIGEST_FILE).is_file():
        raise BundleError(f"{folder} is not empty and is no bundle: give a new folder.")
    try:
        with atomic_folder(folder, replace=True) as fresh:
            save_file(weights, fresh / WEIGHTS_FILE, metadata={"format": "pt"})
            _write_json(fresh / CONFIG_FILE, model.config.model_dump(mode="json"))
            _write_json(fresh / PREPROCESSING_FILE, preprocessing.config.model_dump(mode="json"))
            deciding = [*DECIDING_FILES]
            if model.config.text is not None:
                tokenizer = preprocessing.text.tokenizer.to_json()
                (fresh / TOKENIZER_FILE).write_text(tokenizer, encoding="utf-8")
                deciding.append(TOKENIZER_FILE)
            _write_json(fresh / METRICS_FILE, dict(metrics))
            (fresh / RECIPE_FILE).write_text(recipe_yaml, encoding="utf-8")
            files = {file: file_sha256(fresh / file) for file in deciding}
            seal = Seal(name=name, created=created, digest=digest_of(files), files=files)
            _write_json(fresh / DIGEST_FILE, seal.model_dump(mode="json"))
            card = model_card(seal, model.config, preprocessing.config, metrics)
            (fresh / _CARD_FILE).write_text(card, encoding="utf-8")
    except OSError as error:
        raise BundleError(f"The bundle cannot be written to {folder}: {error.strerror or error}.") from error
    return read_bundle(folder)


def model_card(
    seal: Seal, config: DualEncoderConfig, preprocessing: PreprocessingConfig, metrics: Mapping[str, float]
) -> str:
    """Markdown that says what a bundle is, what it takes and how good it was when it was made."""
    image, text, audio = preprocessing.image, preprocessing.text, preprocessing.audio
    resize = image.resize if image.resize_to is None else f"{image.resize} of {image.resize_to}"
    figures = [f"| {key} | {value:.4g} |" for key, value in sorted(metrics.items())]
    lines = [
        f"# {seal.name}",
        "",
        f"Encoders of {_kinds(config)} that map into one space; near vectors mean similar content.",
        "",
        f"* Made: {seal.created}",
        f"* Digest: `{seal.digest}`",
        f"* Vectors: {_vectors(config)}",
        f"* Images: {config.image.architecture}, {image.size} x {image.size} pixels ({resize})",
    ]
    if config.text is not None:
        kind, pooling = config.text.architecture, config.text.pooling
        lines.append(f"* Texts: {kind}, up to {text.max_tokens} tokens, pooling {pooling}")
    if config.audio is not None:
        heard, rate = config.audio.architecture, audio.sample_rate
        lines.append(f"* Sounds: {heard}, up to {audio.seconds:g} s at {rate} Hz, {audio.mels} mel bands")
    lines += [
        "* Training: the settings are in `recipe.yaml`",
        "",
        "A cosine orders results of one bundle. It is not a probability, and not comparable between bundles.",
        "Not a medical device: results are for finding images, not for diagnosis.",
        "",
    ]
    if figures:
        lines += ["| figure | value |", "|---|---|", *figures, ""]
    return "\n".join(lines)


def _kinds(config: DualEncoderConfig) -> str:
    kinds = ["images", *(["texts"] if config.text else []), *(["sounds"] if config.audio else [])]
    return " and ".join(filter(None, [", ".join(kinds[:-1]), kinds[-1]]))


def _vectors(config: DualEncoderConfig) -> str:
    if config.pair_attention is not None:
        return "none to search by: an image and a text are compared region by word"
    if config.blades > 1:
        return f"{config.blades} x {config.dim} numbers, compared by the cosine of {config.blades}-blades"
    chosen = "" if config.branches is None else f" ({config.retrieval} information)"
    measure = "|cosine|" if config.unsigned else "cosine"
    return f"{config.vector_dim} numbers{chosen}, compared by {measure}"


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")

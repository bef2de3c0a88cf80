"""Writing a bundle and its model card."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from safetensors.torch import save_file

from training.common.atomic import atomic_folder
from training.common.errors import BundleError
from training.models.bundle import (
    CONFIG_FILE,
    DECIDING_FILES,
    DIGEST_FILE,
    METRICS_FILE,
    PREPROCESSING_FILE,
    RECIPE_FILE,
    TOKENIZER_FILE,
    WEIGHTS_FILE,
    BundleInfo,
    Seal,
    digest_of,
    file_sha256,
    read_bundle,
)
from training.models.config import DualEncoderConfig, PreprocessingConfig
from training.models.dual_encoder import DualEncoder
from training.models.preprocessing import Preprocessing

_CARD_FILE: Final = "README.md"


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
            deciding: tuple[str, ...] = DECIDING_FILES
            if model.config.text is not None:
                tokenizer = preprocessing.text.tokenizer.to_json()
                (fresh / TOKENIZER_FILE).write_text(tokenizer, encoding="utf-8")
                deciding = (*DECIDING_FILES, TOKENIZER_FILE)
            _write_json(fresh / METRICS_FILE, dict(metrics))
            (fresh / RECIPE_FILE).write_text(recipe_yaml, encoding="utf-8")
            files = {file: file_sha256(fresh / file) for file in deciding}
            seal = Seal(name=name, created=created, digest=digest_of(files), files=files)
            _write_json(fresh / DIGEST_FILE, seal.model_dump(mode="json"))
            card = model_card(name, seal.digest, created, model.config, preprocessing.config, metrics)
            (fresh / _CARD_FILE).write_text(card, encoding="utf-8")
    except OSError as error:
        raise BundleError(f"The bundle cannot be written to {folder}: {error.strerror or error}.") from error
    return read_bundle(folder)


def model_card(
    name: str,
    digest: str,
    created: str,
    config: DualEncoderConfig,
    preprocessing: PreprocessingConfig,
    metrics: Mapping[str, float],
) -> str:
    """Markdown that says what a bundle is, what it takes and how good it was when it was made."""
    image, text, audio = preprocessing.image, preprocessing.text, preprocessing.audio
    resize = image.resize if image.resize_to is None else f"{image.resize} of {image.resize_to}"
    figures = [f"| {key} | {value:.4g} |" for key, value in sorted(metrics.items())]
    lines = [
        f"# {name}",
        "",
        f"Encoders of {_kinds(config)} that map into one space; near vectors mean similar content.",
        "",
        f"* Made: {created}",
        f"* Digest: `{digest}`",
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

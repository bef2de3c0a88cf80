"""The model card of a bundle."""

from collections.abc import Mapping

from training.models.config import DualEncoderConfig, PreprocessingConfig


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

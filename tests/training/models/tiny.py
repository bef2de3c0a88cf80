"""Encoders of every architecture, small enough to build and run within milliseconds."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn
from transformers import BertConfig, BertModel

from training.models.bundle import BundleInfo, save_bundle
from training.models.config import DualEncoderConfig, ImageArchitecture, PreprocessingConfig, TextArchitecture
from training.models.dual_encoder import DualEncoder, build_dual_encoder
from training.models.encoder import Encoder
from training.models.image_towers import ImageTower
from training.models.learned_tokenizer import learn_tokenizer
from training.models.preprocessing import Preprocessing, SpectrogramBatch, TokenBatch, pad_spectrograms
from training.models.text_input import Tokenizer

SIZE = 32
TEXTS = (
    "A cat sits on the mat.",
    "Two dogs run through tall green grass beside a red ball",
    "No pleural effusion; the heart is enlarged, and the lungs are clear.",
    "x-ray",
)

_TRANSFORMER = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2}
_VISION = {**_TRANSFORMER, "image_size": SIZE, "patch_size": 16}
EFFICIENTNET: dict[str, Any] = {
    "width_coefficient": 0.25,
    "depth_coefficient": 0.5,
    "hidden_dim": 320,
    "initializer_range": 0.6,
    "drop_connect_rate": 0.0,
}
_STAGES = {"hidden_sizes": [8, 8, 16, 16], "depths": [1, 2, 1, 1]}

IMAGE_OPTIONS: dict[ImageArchitecture, dict[str, Any]] = {
    "clip_resnet": {"layers": [1, 2, 1, 1], "width": 4, "heads": 4, "image_size": SIZE},
    "clip_vision_model": {**_VISION, "intermediate_size": 32},
    "convnext": _STAGES,
    "dinov2": {**_VISION, "mlp_ratio": 2},
    "dinov2_with_registers": {**_VISION, "mlp_ratio": 2, "num_register_tokens": 2},
    "dinov3_vit": {**_VISION, "intermediate_size": 32, "num_register_tokens": 2},
    "efficientnet": EFFICIENTNET,
    "mobilenet_v2": {"depth_multiplier": 0.25, "finegrained_output": False},
    "resnet": {"embedding_size": 8, **_STAGES},
    "siglip_vision_model": {**_VISION, "intermediate_size": 32},
    "vit": {**_VISION, "intermediate_size": 32},
}
TEXT_OPTIONS: dict[TextArchitecture, dict[str, Any]] = {
    "altclip_text_model": {
        **_TRANSFORMER,
        "intermediate_size": 32,
        "project_dim": 24,
        "initializer_range": 0.2,
        "max_position_embeddings": 40,
    },
    "bert": {**_TRANSFORMER, "intermediate_size": 32},
    "clip_text_model": {**_TRANSFORMER, "intermediate_size": 32},
    "distilbert": {"dim": 16, "n_layers": 3, "n_heads": 2, "hidden_dim": 32},
    "gru": {"word_width": 10, "width": 16, "layers": 3},
    "roberta": {**_TRANSFORMER, "intermediate_size": 32},
    "siglip_text_model": {**_TRANSFORMER, "intermediate_size": 32},
    "small_transformer": {"width": 16, "layers": 3, "heads": 2},
    "text_cnn": {"word_width": 10, "widths": [8, 16], "depths": [1, 2]},
}
BERT_SIZE: dict[str, Any] = {**_TRANSFORMER, "num_hidden_layers": 2, "intermediate_size": 32}


@cache
def tiny_tokenizer() -> Tokenizer:
    return learn_tokenizer(TEXTS, vocabulary_size=300)


def write_tokenizer(folder: Path) -> None:
    """Write the tiny tokenizer as the hub keeps one."""
    (folder / "tokenizer.json").write_text(tiny_tokenizer().to_json())
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "<pad>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def write_bert(folder: Path) -> None:
    """Write a BERT as the hub keeps one, with the pooling layer that sentence encoders do not use."""
    torch.manual_seed(0)
    BertModel(BertConfig(vocab_size=300, max_position_embeddings=40, **BERT_SIZE)).save_pretrained(folder)
    write_tokenizer(folder)


def tiny_config(
    image: ImageArchitecture = "resnet",
    text: TextArchitecture = "small_transformer",
    *,
    image_settings: dict[str, Any] | None = None,
    text_settings: dict[str, Any] | None = None,
    **settings: Any,
) -> DualEncoderConfig:
    content = {
        "image": {"architecture": image, "options": IMAGE_OPTIONS[image], **(image_settings or {})},
        "text": {"architecture": text, "options": TEXT_OPTIONS[text], **(text_settings or {})},
        "dim": 12,
        **settings,
    }
    return DualEncoderConfig.model_validate(content)


def tiny_model(config: DualEncoderConfig | None = None, *, seed: int = 0) -> DualEncoder:
    torch.manual_seed(seed)
    return build_dual_encoder(config or tiny_config(), tiny_tokenizer(), load_pretrained=True)


def image_tower(model: DualEncoder) -> ImageTower:
    """The image tower of a model that was built with all of its towers."""
    assert model.image is not None
    return model.image


def image_head(model: DualEncoder) -> nn.Module:
    """The image head of a model that was built with all of its towers."""
    assert model.image_head is not None
    return model.image_head


def tiny_preprocessing(**settings: Any) -> Preprocessing:
    content = {"image": {"size": SIZE}, "text": {"max_tokens": 32}, **settings}
    return Preprocessing(PreprocessingConfig.model_validate(content), tiny_tokenizer())


def saved(
    folder: Path,
    model: DualEncoder | None = None,
    preprocessing: Preprocessing | None = None,
    *,
    name: str = "tiny",
    metrics: Mapping[str, float] = MappingProxyType({}),
    recipe_yaml: str = "",
) -> BundleInfo:
    """A bundle of a model, whose preprocessing is the tiny one unless it is given."""
    return save_bundle(
        folder,
        name=name,
        model=model or tiny_model(),
        preprocessing=preprocessing or tiny_preprocessing(),
        metrics=metrics,
        recipe_yaml=recipe_yaml,
    )


def tiny_tokens(texts: tuple[str, ...] = TEXTS) -> TokenBatch:
    return tiny_preprocessing().text(texts)


def tiny_pixels(count: int = 4, *, seed: int = 0) -> Tensor:
    return torch.randn(count, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(seed))


AUDIO: dict[str, Any] = {"architecture": "audio_cnn", "options": {"mels": 20, "width": 16, "layers": 2}}


def tiny_audio_model(*, texts: bool = True, seed: int = 0, **settings: Any) -> DualEncoder:
    """A model of images, sounds and, optionally, texts."""
    config = tiny_config(audio=AUDIO, **settings)
    if not texts:
        config = config.model_copy(update={"text": None})
    torch.manual_seed(seed)
    return build_dual_encoder(config, tiny_tokenizer() if texts else None, load_pretrained=True)


def tiny_audio_preprocessing(*, texts: bool = True) -> Preprocessing:
    content = {"image": {"size": SIZE}, "text": {"max_tokens": 32}, "audio": {"mels": 20, "seconds": 0.2}}
    return Preprocessing(PreprocessingConfig.model_validate(content), tiny_tokenizer() if texts else None)


def tiny_audio_encoder(*, texts: bool = True) -> Encoder:
    return Encoder(tiny_audio_model(texts=texts).eval(), tiny_audio_preprocessing(texts=texts))


def tiny_spectrograms(count: int = 4, *, seed: int = 0) -> SpectrogramBatch:
    generator = torch.Generator().manual_seed(seed)
    return pad_spectrograms([torch.randn(20, 5 + 3 * row, generator=generator) for row in range(count)])

"""CLIP's towers bring the temperature that they were trained with."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from tests.training.models.tiny import IMAGE_OPTIONS, TEXT_OPTIONS, write_tokenizer
from training.models.config import DualEncoderConfig
from training.models.dual_encoder import pretrained_logits
from training.models.logits import PretrainedLogits
from training.models.pretrained.architecture import read_logits

VOCABULARY = {"vocab_size": 300, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
DIM = 12
APPROXIMATELY: Any = pytest.approx(0.01, rel=1e-6)
CLIPS = PretrainedLogits(APPROXIMATELY)


def write_clip(folder: Path) -> Path:
    """Write a tiny CLIP as the hub keeps one, with the logit scale of the published weights."""
    torch.manual_seed(0)
    config = transformers.CLIPConfig(
        vision_config=IMAGE_OPTIONS["clip_vision_model"],
        text_config={**TEXT_OPTIONS["clip_text_model"], **VOCABULARY},
        projection_dim=DIM,
    )
    model = transformers.CLIPModel(config)
    with torch.no_grad():
        model.logit_scale.fill_(math.log(100))
    model.save_pretrained(folder)
    write_tokenizer(folder)
    return folder


def write_siglip(folder: Path) -> Path:
    torch.manual_seed(0)
    config = transformers.SiglipConfig(
        vision_config=IMAGE_OPTIONS["siglip_vision_model"],
        text_config={**TEXT_OPTIONS["siglip_text_model"], **VOCABULARY},
    )
    transformers.SiglipModel(config).save_pretrained(folder)
    write_tokenizer(folder)
    return folder


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_clip(tmp_path_factory.mktemp("clip"))


def config_of(
    folder: Path | str | None,
    *,
    family: str = "clip",
    image: dict[str, Any] | None = None,
    text: dict[str, Any] | None = None,
    **settings: Any,
) -> DualEncoderConfig:
    pretrained = None if folder is None else str(folder)
    content: dict[str, Any] = {
        "image": {"architecture": f"{family}_vision_model", "pretrained": pretrained} | (image or {}),
        "text": {"architecture": f"{family}_text_model", "pretrained": pretrained, "pooling": "eos"}
        | (text or {}),
        "dim": DIM,
    }
    return DualEncoderConfig.model_validate(content | settings)


def test_the_temperature_of_clip_is_read_from_its_folder(clip: Path) -> None:
    assert read_logits(clip) == CLIPS
    assert pretrained_logits(config_of(clip)) == CLIPS
    branches = config_of(clip, branches={})
    assert pretrained_logits(branches) == CLIPS


@pytest.mark.parametrize(
    "settings",
    [
        {"image": {"pretrained": "another"}},
        {"image": {"pooling": "mean"}},
        {"image": {"head": {"kind": "mlp"}}},
        {"text": {"pooling": "mean"}},
        {"text": {"head": {"kind": "mlp"}}},
        {"text": {"architecture": "bert"}},
        {"text": None},
        {"dim": 16},
        {"blades": 2},
        {"audio": {"architecture": "audio_cnn"}},
    ],
    ids=str,
)
def test_another_space_than_that_of_clip_has_no_temperature(settings: dict[str, Any], clip: Path) -> None:
    content = config_of(clip).model_dump()
    for key, value in settings.items():
        content[key] = content[key] | value if isinstance(value, dict) and content[key] else value
    assert pretrained_logits(DualEncoderConfig.model_validate(content)) is None


def test_random_towers_and_weights_without_a_scale_have_no_temperature(clip: Path, tmp_path: Path) -> None:
    assert pretrained_logits(config_of(None)) is None
    weights = load_file(clip / "model.safetensors")
    del weights["logit_scale"]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    assert pretrained_logits(config_of(tmp_path)) is None


def test_open_clip_names_it_alike(tmp_path: Path) -> None:
    weights = {
        "visual.attnpool.positional_embedding": torch.zeros(2, 32),
        "ln_final.weight": torch.zeros(64),
        "token_embedding.weight": torch.zeros(300, 64),
        "text_projection": torch.zeros(64, DIM),
        "logit_scale": torch.tensor(math.log(100)),
    }
    save_file(weights, tmp_path / "open_clip_model.safetensors")
    config = config_of(tmp_path, image={"architecture": "clip_resnet"})
    assert pretrained_logits(config) == CLIPS
    assert pretrained_logits(config.model_copy(update={"dim": 64})) is None


def test_the_scale_of_siglip_belongs_to_a_sigmoid(tmp_path: Path) -> None:
    config = config_of(write_siglip(tmp_path), family="siglip", dim=16)
    found = pretrained_logits(config)
    assert found is not None
    assert found.bias is not None
    assert pretrained_logits(config.model_copy(update={"dim": 12})) is None

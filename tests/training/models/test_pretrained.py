"""Towers from folders of pretrained models, and the temperature that they were trained with."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from tests.training.models.tiny import (
    IMAGE_OPTIONS,
    TEXT_OPTIONS,
    tiny_pixels,
    tiny_tokenizer,
    tiny_tokens,
    write_tokenizer,
)
from training.common.errors import RecipeError
from training.models.config import DualEncoderConfig, ImageTowerConfig, TextTowerConfig
from training.models.dual_encoder import pretrained_logits
from training.models.features import PretrainedLogits
from training.models.image_towers import ImageTower, build_image_tower
from training.models.pretrained.architecture import read_logits
from training.models.pretrained.folder import local_folder
from training.models.text_towers import TextTower, build_text_tower

VOCABULARY = {"vocab_size": 300, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
DIM = 12
APPROXIMATELY: Any = pytest.approx(0.01, rel=1e-6)
CLIPS = PretrainedLogits(APPROXIMATELY)


def image_tower(architecture: str, folder: Path, *, load_pretrained: bool = True) -> ImageTower:
    config = ImageTowerConfig.model_validate({"architecture": architecture, "pretrained": str(folder)})
    return build_image_tower(config, load_pretrained=load_pretrained).eval()


def text_tower(architecture: str, folder: Path, pooling: str = "mean") -> TextTower:
    config = TextTowerConfig.model_validate(
        {"architecture": architecture, "pretrained": str(folder), "pooling": pooling}
    )
    return build_text_tower(config, tiny_tokenizer(), load_pretrained=True).eval()


def write_clip(folder: Path) -> Path:
    """Write a tiny CLIP as the hub keeps one, with the logit scale of the published weights."""
    torch.manual_seed(0)
    config = transformers.CLIPConfig(
        vision_config={**IMAGE_OPTIONS["clip_vision_model"], "hidden_size": 24, "num_attention_heads": 3},
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


@pytest.fixture(scope="module")
def siglip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_siglip(tmp_path_factory.mktemp("siglip"))


def test_a_clip_folder_gives_its_parts_and_their_projections(clip: Path) -> None:
    model: Any = transformers.CLIPModel.from_pretrained(clip)
    model.eval()
    image = image_tower("clip_vision_model", clip)
    expected = model.vision_model(pixel_values=tiny_pixels())
    torch.testing.assert_close(image(tiny_pixels()).pooled, expected.pooler_output)
    assert image.projection is not None
    assert torch.equal(image.projection.weight, model.visual_projection.weight)
    text, tokens = text_tower("clip_text_model", clip, "eos"), tiny_tokens()
    hidden = model.text_model(input_ids=tokens.input_ids).last_hidden_state
    ends = tokens.attention_mask.sum(dim=1) - 1
    torch.testing.assert_close(text(tokens).pooled, hidden[torch.arange(len(hidden)), ends])
    assert text.projection is not None
    assert torch.equal(text.projection.weight, model.text_projection.weight)


def test_a_siglip_folder_gives_its_parts(siglip: Path) -> None:
    model: Any = transformers.SiglipModel.from_pretrained(siglip)
    model.eval()
    expected = model.vision_model(pixel_values=tiny_pixels()).pooler_output
    torch.testing.assert_close(image_tower("siglip_vision_model", siglip)(tiny_pixels()).pooled, expected)
    tokens = tiny_tokens()
    # SigLIP was trained on texts padded to its full length, padding attended to.
    full = torch.full((len(tokens.input_ids), 64), tiny_tokenizer().pad_id)
    full[:, : tokens.input_ids.shape[1]] = tokens.input_ids
    expected = model.text_model(input_ids=full).pooler_output
    torch.testing.assert_close(text_tower("siglip_text_model", siglip, "eos")(tokens).pooled, expected)


def save_resnet(folder: Path) -> transformers.ResNetModel:
    torch.manual_seed(0)
    model = transformers.ResNetModel(transformers.ResNetConfig(**IMAGE_OPTIONS["resnet"]))
    model.train(False)
    model.save_pretrained(folder)
    return model


def change_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def halve(weights: dict[str, torch.Tensor]) -> None:
    weights |= {name: value.half() for name, value in weights.items() if value.is_floating_point()}


def test_half_precision_files_become_float32_and_nothing_names_their_folder(tmp_path: Path) -> None:
    model = save_resnet(tmp_path)
    change_weights(tmp_path, halve)
    content = json.loads((tmp_path / "config.json").read_text()) | {"dtype": "float16"}
    (tmp_path / "config.json").write_text(json.dumps(content))
    tower = image_tower("resnet", tmp_path)
    assert {value.dtype for value in tower.parameters()} == {torch.float32}
    expected = model(pixel_values=tiny_pixels()).pooler_output.flatten(1)
    torch.testing.assert_close(tower(tiny_pixels()).pooled, expected, atol=1e-2, rtol=1e-2)
    assert tower.config.pretrained is None
    assert str(tmp_path) not in tower.config.model_dump_json()
    again = build_image_tower(tower.config, load_pretrained=True).eval()
    again.load_state_dict(tower.state_dict())
    assert torch.equal(again(tiny_pixels()).pooled, tower(tiny_pixels()).pooled)
    (tmp_path / "model.safetensors").unlink()
    assert image_tower("resnet", tmp_path, load_pretrained=False).config == tower.config


def leave_a_pickle(folder: Path) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def cut_weights(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "model.safetensors").unlink(), "safetensors"),
        (leave_a_pickle, "safetensors"),
        (cut_weights, "cannot be loaded"),
        (
            lambda folder: change_weights(
                folder, lambda weights: weights.pop("embedder.embedder.convolution.weight")
            ),
            "lack 1 tensors",
        ),
        (lambda folder: (folder / "config.json").unlink(), "config.json cannot be read"),
    ],
)
def test_a_damaged_folder_is_named(tmp_path: Path, damage: Callable[[Path], None], message: str) -> None:
    save_resnet(tmp_path)
    damage(tmp_path)
    with pytest.raises(RecipeError, match=message):
        image_tower("resnet", tmp_path)


@pytest.mark.parametrize(
    ("kind", "build", "architecture", "advice"),
    [
        ("resnet", image_tower, "vit", ": set the architecture to resnet, not vit."),
        ("siglip", text_tower, "bert", ": set the architecture to siglip_text_model, not bert."),
        (
            "mpnet",
            text_tower,
            "bert",
            ", which no architecture fits: choose a pretrained model of one of altclip_text_model, bert, "
            "clip_text_model, distilbert, roberta, siglip_text_model, and set the architecture to it.",
        ),
    ],
)
def test_a_model_of_another_architecture_is_named(
    kind: str, build: Callable[[str, Path], object], architecture: str, advice: str, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
    with pytest.raises(RecipeError) as refused:
        build(architecture, tmp_path)
    assert str(refused.value) == f"{tmp_path} holds a model of type {kind!r}{advice}"


@pytest.mark.parametrize("name", ["/no/such/folder", "./nothing", "a/b/c", "../nothing"])
def test_a_missing_folder_is_named_without_asking_a_network(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RecipeError, match="There is no folder"):
        local_folder(name)


def config_of(
    folder: Path | str | None,
    *,
    family: str = "clip",
    image: dict[str, Any] | None = None,
    text: dict[str, Any] | None = None,
    **settings: Any,
) -> DualEncoderConfig:
    pretrained = None if folder is None else str(folder)
    shared = {"pretrained": pretrained}
    content: dict[str, Any] = {
        "image": {"architecture": f"{family}_vision_model", **shared, **(image or {})},
        "text": {"architecture": f"{family}_text_model", "pooling": "eos", **shared, **(text or {})},
        "dim": DIM,
    }
    return DualEncoderConfig.model_validate(content | settings)


def test_the_temperature_of_clip_is_read_from_its_folder(clip: Path) -> None:
    assert read_logits(clip) == CLIPS
    assert pretrained_logits(config_of(clip)) == CLIPS
    assert pretrained_logits(config_of(clip, branches={})) == CLIPS
    assert pretrained_logits(config_of(None)) is None


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
        {"concepts": 3},
        {"audio": {"architecture": "audio_cnn"}},
    ],
    ids=str,
)
def test_another_space_than_that_of_clip_has_no_temperature(settings: dict[str, Any], clip: Path) -> None:
    content = config_of(clip).model_dump()
    for key, value in settings.items():
        content[key] = content[key] | value if isinstance(value, dict) and content[key] else value
    assert pretrained_logits(DualEncoderConfig.model_validate(content)) is None


def test_other_weights_have_a_scale_of_their_own_or_none(clip: Path, siglip: Path, tmp_path: Path) -> None:
    config = config_of(siglip, family="siglip", dim=16)
    actual = pretrained_logits(config)
    assert actual is not None
    assert actual.bias is not None
    assert pretrained_logits(config.model_copy(update={"dim": 12})) is None
    save_file(load_file(clip / "model.safetensors"), tmp_path / "model.safetensors")
    change_weights(tmp_path, lambda weights: weights.pop("logit_scale"))
    assert pretrained_logits(config_of(tmp_path)) is None
    open_clip = tmp_path / "open_clip"
    open_clip.mkdir()
    weights = {
        "visual.attnpool.positional_embedding": torch.zeros(2, 32),
        "ln_final.weight": torch.zeros(64),
        "token_embedding.weight": torch.zeros(300, 64),
        "text_projection": torch.zeros(64, DIM),
        "logit_scale": torch.tensor(math.log(100)),
    }
    save_file(weights, open_clip / "open_clip_model.safetensors")
    config = config_of(open_clip, image={"architecture": "clip_resnet"})
    assert pretrained_logits(config) == CLIPS
    assert pretrained_logits(config.model_copy(update={"dim": 64})) is None

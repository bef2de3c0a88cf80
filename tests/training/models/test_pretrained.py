import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from tests.training.models.tiny import IMAGE_OPTIONS, TEXT_OPTIONS, tiny_pixels, tiny_tokenizer, tiny_tokens
from training.common.errors import RecipeError
from training.models.config import ImageTowerConfig, TextTowerConfig
from training.models.images.towers import ImageTower, build_image_tower
from training.models.pretrained.folder import local_folder
from training.models.texts.towers import TextTower, build_text_tower

VOCABULARY = {"vocab_size": 300, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def image_tower(architecture: str, folder: Path, *, load_pretrained: bool = True) -> ImageTower:
    config = ImageTowerConfig.model_validate({"architecture": architecture, "pretrained": str(folder)})
    return build_image_tower(config, load_pretrained=load_pretrained).eval()


def text_tower(architecture: str, folder: Path, pooling: str = "mean") -> TextTower:
    config = TextTowerConfig.model_validate(
        {"architecture": architecture, "pretrained": str(folder), "pooling": pooling}
    )
    return build_text_tower(config, tiny_tokenizer(), load_pretrained=True).eval()


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, transformers.CLIPModel]:
    torch.manual_seed(0)
    config = transformers.CLIPConfig(
        vision_config={**IMAGE_OPTIONS["clip_vision_model"], "hidden_size": 24, "num_attention_heads": 3},
        text_config={**TEXT_OPTIONS["clip_text_model"], **VOCABULARY},
        projection_dim=12,
    )
    model = transformers.CLIPModel(config)
    model.train(False)
    folder = tmp_path_factory.mktemp("clip")
    model.save_pretrained(folder)
    return folder, model


@pytest.fixture(scope="module")
def siglip(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, transformers.SiglipModel]:
    torch.manual_seed(0)
    config = transformers.SiglipConfig(
        vision_config=IMAGE_OPTIONS["siglip_vision_model"],
        text_config={**TEXT_OPTIONS["siglip_text_model"], **VOCABULARY},
    )
    model = transformers.SiglipModel(config)
    model.train(False)
    folder = tmp_path_factory.mktemp("siglip")
    model.save_pretrained(folder)
    return folder, model


def test_a_clip_folder_gives_its_vision_part(clip: tuple[Path, transformers.CLIPModel]) -> None:
    folder, model = clip
    tower = image_tower("clip_vision_model", folder)
    expected = model.vision_model(pixel_values=tiny_pixels())
    torch.testing.assert_close(tower(tiny_pixels()).pooled, expected.pooler_output)
    assert tower.projection is not None
    assert torch.equal(tower.projection.weight, model.visual_projection.weight)


def test_a_clip_folder_gives_its_text_part(clip: tuple[Path, transformers.CLIPModel]) -> None:
    folder, model = clip
    tower, tokens = text_tower("clip_text_model", folder, "eos"), tiny_tokens()
    hidden = model.text_model(input_ids=tokens.input_ids).last_hidden_state
    ends = tokens.attention_mask.sum(dim=1) - 1
    torch.testing.assert_close(tower(tokens).pooled, hidden[torch.arange(len(hidden)), ends])
    assert tower.projection is not None
    assert torch.equal(tower.projection.weight, model.text_projection.weight)


def test_a_siglip_folder_gives_its_vision_part(siglip: tuple[Path, transformers.SiglipModel]) -> None:
    folder, model = siglip
    expected = model.vision_model(pixel_values=tiny_pixels()).pooler_output
    torch.testing.assert_close(image_tower("siglip_vision_model", folder)(tiny_pixels()).pooled, expected)


def test_a_siglip_folder_gives_its_text_part(siglip: tuple[Path, transformers.SiglipModel]) -> None:
    folder, model = siglip
    tokens = tiny_tokens()
    # SigLIP was trained on texts padded to its full length, padding attended to.
    full = torch.full((len(tokens.input_ids), 64), tiny_tokenizer().pad_id)
    full[:, : tokens.input_ids.shape[1]] = tokens.input_ids
    expected = model.text_model(input_ids=full).pooler_output
    torch.testing.assert_close(text_tower("siglip_text_model", folder, "eos")(tokens).pooled, expected)


def save_resnet(folder: Path) -> transformers.ResNetModel:
    torch.manual_seed(0)
    model = transformers.ResNetModel(transformers.ResNetConfig(**IMAGE_OPTIONS["resnet"]))
    model.train(False)
    model.save_pretrained(folder)
    return model


def test_half_precision_files_become_float32(tmp_path: Path) -> None:
    model = save_resnet(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    half = {name: value.half() if value.is_floating_point() else value for name, value in weights.items()}
    save_file(half, tmp_path / "model.safetensors", metadata={"format": "pt"})
    content = json.loads((tmp_path / "config.json").read_text()) | {"dtype": "float16"}
    (tmp_path / "config.json").write_text(json.dumps(content))
    tower = image_tower("resnet", tmp_path)
    assert {value.dtype for value in tower.parameters()} == {torch.float32}
    expected = model(pixel_values=tiny_pixels()).pooler_output.flatten(1)
    torch.testing.assert_close(tower(tiny_pixels()).pooled, expected, atol=1e-2, rtol=1e-2)


def test_resolved_configuration_does_not_name_the_folder(tmp_path: Path) -> None:
    save_resnet(tmp_path)
    tower = image_tower("resnet", tmp_path)
    assert tower.config.pretrained is None
    assert str(tmp_path) not in tower.config.model_dump_json()
    again = build_image_tower(tower.config, load_pretrained=True).eval()
    again.load_state_dict(tower.state_dict())
    assert torch.equal(again(tiny_pixels()).pooled, tower(tiny_pixels()).pooled)


def test_architecture_without_weights(tmp_path: Path) -> None:
    save_resnet(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    tower = image_tower("resnet", tmp_path, load_pretrained=False)
    assert tower.config.options["depths"] == IMAGE_OPTIONS["resnet"]["depths"]


def remove_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def leave_a_pickle(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    torch.save(weights, folder / "pytorch_model.bin")
    remove_weights(folder)


def cut_weights(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])


def drop_a_tensor(folder: Path) -> None:
    path = folder / "model.safetensors"
    weights = load_file(path)
    del weights["embedder.embedder.convolution.weight"]
    save_file(weights, path, metadata={"format": "pt"})


def remove_configuration(folder: Path) -> None:
    (folder / "config.json").unlink()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (remove_weights, "safetensors"),
        (leave_a_pickle, "safetensors"),
        (cut_weights, "cannot be loaded"),
        (drop_a_tensor, "lack 1 tensors"),
        (remove_configuration, "config.json cannot be read"),
    ],
)
def test_a_damaged_folder_is_named(tmp_path: Path, damage: Callable[[Path], None], message: str) -> None:
    save_resnet(tmp_path)
    damage(tmp_path)
    with pytest.raises(RecipeError, match=message):
        image_tower("resnet", tmp_path)


def test_a_model_of_another_architecture_is_named(tmp_path: Path) -> None:
    save_resnet(tmp_path)
    with pytest.raises(RecipeError) as refused:
        image_tower("vit", tmp_path)
    wanted = f"{tmp_path} holds a model of type 'resnet': set the architecture to resnet, not vit."
    assert str(refused.value) == wanted


def test_a_part_of_another_model_of_images_and_texts_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "siglip"}))
    with pytest.raises(RecipeError, match="set the architecture to siglip_text_model, not bert"):
        text_tower("bert", tmp_path)


def test_a_type_without_an_architecture_is_named_with_those_that_there_are(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "mpnet"}))
    with pytest.raises(RecipeError) as refused:
        text_tower("bert", tmp_path)
    assert str(refused.value) == (
        f"{tmp_path} holds a model of type 'mpnet', which no architecture fits: choose a pretrained model of "
        "one of altclip_text_model, bert, clip_text_model, distilbert, roberta, siglip_text_model, and set "
        "the architecture to it."
    )


@pytest.mark.parametrize("name", ["/no/such/folder", "./nothing", "a/b/c", "../nothing"])
def test_a_missing_folder_is_named_without_asking_a_network(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RecipeError, match="There is no folder"):
        local_folder(name)

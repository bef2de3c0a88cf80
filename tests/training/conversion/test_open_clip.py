import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from safetensors.torch import load_file, save_file
from torch.nn import functional

from tests.training.conversion.open_clip_models import CONTEXT, DIM, SIZE, hub_clip, own_clip
from tests.training.models.tiny import TEXTS
from training.conversion.convert import convert
from training.conversion.parity import made_images
from training.errors import RecipeError
from training.models.encoder import load_encoder
from training.models.inputs.images import to_pixels

EVERY = pytest.mark.parametrize(
    "write",
    [
        own_clip,
        partial(own_clip, quick=True),
        hub_clip,
        partial(hub_clip, roberta=True),
    ],
)


@EVERY
def test_a_bundle_gives_the_vectors_of_the_model(write: Callable[[Path], Any], tmp_path: Path) -> None:
    model = write(tmp_path / "model")
    made = convert(str(tmp_path / "model"), tmp_path / "bundle", name="mine")
    assert made.parity is None
    assert made.bundle.dim == DIM
    encoder = load_encoder(tmp_path / "bundle", "cpu")
    pixels = np.stack([encoder.prepare_image(image) for image in made_images().values()])
    preprocessing = encoder.preprocessing
    tokens = preprocessing.text([*TEXTS, "", "a dog on the beach " * 40])
    assert tokens.input_ids.shape[1] == CONTEXT
    normal = preprocessing.image.normalise(preprocessing.image.to_unit(torch.from_numpy(pixels)))
    with torch.inference_mode():
        images = functional.normalize(model.visual(normal), dim=-1).numpy()
        texts = functional.normalize(model.encode_text(tokens.input_ids, tokens.attention_mask), dim=-1)
    np.testing.assert_allclose(encoder.embed_images(pixels), images, atol=1e-5)
    found = encoder.embed_texts([*TEXTS, "", "a dog on the beach " * 40]).vectors
    np.testing.assert_allclose(found, texts.numpy(), atol=1e-5)
    assert (images @ images.T).min() < 0.99
    assert (found @ found.T).min() < 0.99
    recipe = yaml.safe_load(made.bundle.recipe)
    assert recipe["objective"]["temperature"] == pytest.approx(math.exp(-4.6))


def test_images_are_prepared_as_the_folder_says(tmp_path: Path) -> None:
    own_clip(tmp_path / "own")
    hub_clip(tmp_path / "hub")
    own = convert(str(tmp_path / "own"), tmp_path / "a", name="own").bundle.preprocessing.image
    hub = convert(str(tmp_path / "hub"), tmp_path / "b", name="hub").bundle.preprocessing.image
    assert (own.resize, own.filter, own.mean, own.std) == (
        "shortest_edge",
        "bicubic",
        (0.4, 0.5, 0.6),
        (0.2, 0.3, 0.25),
    )
    assert (hub.resize, hub.filter, hub.mean[0]) == ("squash", "bilinear", 0.48145466)


@pytest.mark.parametrize("size", [(640, 427), (427, 640), (500, 375), (333, 251)])
def test_the_centre_is_that_of_torchvision(size: tuple[int, int], tmp_path: Path) -> None:
    own_clip(tmp_path / "model")
    config = convert(str(tmp_path / "model"), tmp_path / "b", name="own").bundle.preprocessing.image
    noise = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    image = Image.fromarray(noise)
    width, height = (SIZE * side // min(size) for side in size)
    left, top = (round((side - SIZE) / 2.0) for side in (width, height))
    resized = image.resize((width, height), Image.Resampling.BICUBIC)
    expected = np.asarray(resized.crop((left, top, left + SIZE, top + SIZE)))
    np.testing.assert_array_equal(to_pixels(image, config), expected.transpose(2, 0, 1))


def test_relatives_of_roberta_are_known_by_their_weights(tmp_path: Path) -> None:
    model = hub_clip(tmp_path / "model", roberta=True)
    _settings(tmp_path / "model", "text_cfg", hf_model_name="BAAI/bge-m3")
    convert(str(tmp_path / "model"), tmp_path / "bundle", name="mine")
    encoder = load_encoder(tmp_path / "bundle", "cpu")
    tokens = encoder.preprocessing.text(TEXTS)
    with torch.inference_mode():
        texts = functional.normalize(model.encode_text(tokens.input_ids, tokens.attention_mask), dim=-1)
    np.testing.assert_allclose(encoder.embed_texts(TEXTS).vectors, texts.numpy(), atol=1e-5)


def test_towers_of_unknown_heads_are_refused(tmp_path: Path) -> None:
    hub_clip(tmp_path / "model")
    _settings(tmp_path / "model", "vision_cfg", timm_model_name="vit_so400m_siglip_224")
    with pytest.raises(RecipeError, match="vit_so400m_siglip_224, whose attention heads are not known"):
        convert(str(tmp_path / "model"), tmp_path / "bundle", name="mine")


def test_another_size_of_images_is_refused(tmp_path: Path) -> None:
    own_clip(tmp_path / "model")
    with pytest.raises(RecipeError, match="takes images of 32 pixels, not 64"):
        convert(str(tmp_path / "model"), tmp_path / "bundle", name="mine", size=64)


def _settings(folder: Path, part: str, **settings: object) -> None:
    path = folder / "open_clip_config.json"
    content = json.loads(path.read_text())
    (content["preprocess_cfg"] if part == "preprocess_cfg" else content["model_cfg"][part]).update(settings)
    path.write_text(json.dumps(content))


def _weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    file = folder / "open_clip_model.safetensors"
    weights = load_file(file)
    change(weights)
    save_file(weights, file)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            lambda folder: _settings(folder, "vision_cfg", attentional_pool=True),
            r"model_cfg\.vision_cfg\.attentional_pool is not followed here",
        ),
        (lambda folder: _settings(folder, "text_cfg", no_causal_mask=True), "no_causal_mask is not followed"),
        (
            lambda folder: _settings(folder, "preprocess_cfg", resize_mode="longest"),
            r"preprocess_cfg\.resize_mode is not followed",
        ),
        (
            lambda folder: _weights(
                folder,
                lambda weights: weights.update({"visual.transformer.resblocks.0.ls_1.gamma": torch.ones(2)}),
            ),
            "ls_1.gamma, which is not followed here",
        ),
        (
            lambda folder: _weights(folder, lambda weights: weights.pop("ln_final.bias")),
            "lack .*final_lay",
        ),
        (lambda folder: _weights(folder, lambda weights: weights.pop("visual.proj")), "lack 'proj'"),
        (lambda folder: _settings(folder, "preprocess_cfg", std=[0, 0, 0]), r"preprocess_cfg\.std"),
        (lambda folder: _settings(folder, "text_cfg", heads=3), "do not fit"),
        (lambda folder: (folder / "tokenizer.json").write_text("{}"), "No usable tokenizer"),
        (lambda folder: (folder / "tokenizer.json").unlink(), "No usable tokenizer"),
        (lambda folder: (folder / "open_clip_model.safetensors").unlink(), "No safetensors file"),
    ],
)
def test_what_cannot_be_followed_is_refused(
    spoil: Callable[[Path], object], message: str, tmp_path: Path
) -> None:
    own_clip(tmp_path / "model")
    spoil(tmp_path / "model")
    with pytest.raises(RecipeError, match=message):
        convert(str(tmp_path / "model"), tmp_path / "bundle", name="mine")
    assert not (tmp_path / "bundle").exists()

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import torch
import yaml
from numpy.typing import NDArray
from PIL import Image
from safetensors.torch import load_file, save_file

from tests.training.conversion.open_clip_folders import (
    CONTEXT,
    DIM,
    EVERY,
    SIZE,
    biomed_clip,
    custom_text_clip,
    own_clip,
    roberta_clip,
)
from training.common.errors import BundleError, RecipeError
from training.conversion import convert as conversion
from training.conversion.convert import LOWEST_COSINE, TEXTS, convert, made_images
from training.conversion.open_clip import read_open_clip
from training.conversion.published import Published
from training.conversion.references import OpenClipReference
from training.models.encoder import load_encoder
from training.models.image_input import to_pixels

# Of open_clip 3.3.0 with timm 1.0.31 and torchvision's transforms 0.29.1, for the images and texts of the
# proof: `create_model` of each folder, its `preprocess_cfg`, and `SimpleTokenizer` or `HFTokenizer`.
VECTORS: Final = Path(__file__).with_name("open_clip_vectors.json")


def _of_open_clip(kind: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    vectors = json.loads(VECTORS.read_text())[kind]
    return np.array(vectors["images"]), np.array(vectors["texts"])


@pytest.mark.slow
@pytest.mark.parametrize("kind", EVERY)
def test_a_bundle_gives_the_vectors_of_open_clip(kind: str, tmp_path: Path) -> None:
    EVERY[kind](tmp_path / "model")
    made = convert(str(tmp_path / "model"), tmp_path / "bundle", name="mine")
    assert made.bundle.dim == DIM
    assert made.parity.texts is not None
    assert min(made.parity.images, made.parity.texts) > LOWEST_COSINE
    encoder = load_encoder(tmp_path / "bundle", "cpu")
    images, texts = _of_open_clip(kind)
    pixels = np.stack([encoder.prepare_image(image) for image in made_images().values()])
    np.testing.assert_allclose(encoder.embed_images(pixels), images, atol=1e-4)
    np.testing.assert_allclose(encoder.embed_texts(TEXTS).vectors, texts, atol=1e-4)
    assert (images @ images.T).min() < 0.5
    assert (texts @ texts.T).min() < 0.5
    recipe = yaml.safe_load(made.bundle.recipe)
    assert recipe["objective"]["temperature"] == pytest.approx(math.exp(-4.6))


@pytest.mark.parametrize("kind", EVERY)
def test_the_definition_gives_the_vectors_of_open_clip(kind: str, tmp_path: Path) -> None:
    EVERY[kind](tmp_path / "model")
    definition = OpenClipReference(tmp_path / "model")
    images, texts = _of_open_clip(kind)
    np.testing.assert_allclose(definition.embed_images(list(made_images().values())), images, atol=1e-4)
    np.testing.assert_allclose(definition.embed_texts(TEXTS, CONTEXT), texts, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "part", "settings", "message"),
    [
        (own_clip, "", {"quick_gelu": True}, "image"),
        (own_clip, "vision_cfg", {"head_width": 32}, "image"),
        (own_clip, "text_cfg", {"heads": 2}, "text"),
        (own_clip, "preprocess_cfg", {"resize_mode": "squash"}, "image"),
        (custom_text_clip, "preprocess_cfg", {"resize_mode": "shortest"}, "image"),
        (own_clip, "preprocess_cfg", {"interpolation": "bilinear"}, "image"),
        (own_clip, "preprocess_cfg", {"mean": [0.4, 0.5, 0.59]}, "image"),
        (own_clip, "preprocess_cfg", {"std": [0.2, 0.3, 0.26]}, "image"),
        (biomed_clip, "text_cfg", {"hf_pooler_type": "mean_pooler"}, "text"),
        (roberta_clip, "text_cfg", {"hf_pooler_type": "cls_last_hidden_state_pooler"}, "text"),
    ],
)
def test_a_setting_that_is_misread_leaves_no_bundle(
    make: Callable[[Path], None],
    part: str,
    settings: dict[str, Any],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The towers follow other settings than the folder has."""
    make(tmp_path / "model")
    shutil.copytree(tmp_path / "model", tmp_path / "misread")
    _settings(tmp_path / "misread", part, **settings)

    def misread(folder: Path, size: int | None) -> Published:
        return read_open_clip(tmp_path / "misread", size)

    monkeypatch.setattr(conversion, "read_open_clip", misread)
    with pytest.raises(
        BundleError, match=f"{message} .*would have a cosine of .* with that of open_clip's defin"
    ):
        convert(str(tmp_path / "model"), tmp_path / "bundle", name="mine")
    assert not (tmp_path / "bundle").exists()


def test_a_tokenizer_that_keeps_the_case_is_not_that_of_open_clip(tmp_path: Path) -> None:
    own_clip(tmp_path / "model")
    file = tmp_path / "model" / "tokenizer.json"
    content = json.loads(file.read_text())
    content["normalizer"] = None
    file.write_text(json.dumps(content))
    # CLIP's own class would bring its lower case.
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "<|endoftext|>"}
    (tmp_path / "model" / "tokenizer_config.json").write_text(json.dumps(settings))
    with pytest.raises(BundleError, match="The vector of the text 'TWO DOGS"):
        convert(str(tmp_path / "model"), tmp_path / "bundle", name="mine")
    assert not (tmp_path / "bundle").exists()


@pytest.mark.slow
def test_swapped_queries_and_keys_are_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    biomed_clip(tmp_path / "model")

    def mixed(folder: Path, size: int | None) -> Published:
        published = read_open_clip(folder, size)
        assert published.model.image is not None
        backbone: Any = published.model.image.backbone
        attention = backbone.model.layers[3].attention
        attention.k_proj, attention.v_proj = attention.v_proj, attention.k_proj
        return published

    monkeypatch.setattr(conversion, "read_open_clip", mixed)
    with pytest.raises(BundleError, match="image would have a cosine of"):
        convert(str(tmp_path / "model"), tmp_path / "bundle", name="mine")
    assert not (tmp_path / "bundle").exists()


@pytest.mark.parametrize("make", [own_clip, biomed_clip, roberta_clip])
def test_texts_are_cleaned_as_open_clip_cleans_them(make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path / "model")
    published = read_open_clip(tmp_path / "model")
    tokens = published.preprocessing.text
    plain, *others = tokens(
        [
            'the dog\'s café "a"',
            " the  dog\u2019s\tcaf\u0065\u0301 \u201ca\u201d\n",
            "the\x1cdog\u02bcs\u3000café \u201ea\u201f",
        ]
    ).input_ids
    for other in others:
        assert torch.equal(plain, other)


def test_images_are_prepared_as_the_folder_says(tmp_path: Path) -> None:
    own_clip(tmp_path / "own")
    custom_text_clip(tmp_path / "hub")
    own = convert(str(tmp_path / "own"), tmp_path / "a", name="own").bundle.preprocessing.image
    hub = convert(str(tmp_path / "hub"), tmp_path / "b", name="hub").bundle.preprocessing.image
    assert (own.resize, own.filter) == ("shortest_edge", "bicubic")
    assert (own.mean, own.std) == ((0.4, 0.5, 0.6), (0.2, 0.3, 0.25))
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


@pytest.mark.slow
def test_relatives_of_roberta_are_known_by_their_weights(tmp_path: Path) -> None:
    roberta_clip(tmp_path / "model")
    _settings(tmp_path / "model", "text_cfg", hf_model_name="BAAI/bge-m3")
    made = convert(str(tmp_path / "model"), tmp_path / "bundle", name="mine")
    np.testing.assert_allclose(
        made.encoder.embed_texts(TEXTS).vectors, _of_open_clip("roberta")[1], atol=1e-4
    )


def test_towers_of_unknown_heads_are_refused(tmp_path: Path) -> None:
    biomed_clip(tmp_path / "model")
    _settings(tmp_path / "model", "vision_cfg", timm_model_name="vit_so400m_siglip_224")
    with pytest.raises(RecipeError, match="vit_so400m_siglip_224, whose attention heads are not known"):
        convert(str(tmp_path / "model"), tmp_path / "bundle", name="mine")


def test_another_size_of_images_is_refused(tmp_path: Path) -> None:
    own_clip(tmp_path / "model")
    with pytest.raises(RecipeError, match=r"takes images of 32 pixels, not 64: set --image-size to 32\."):
        convert(str(tmp_path / "model"), tmp_path / "bundle", name="mine", size=64)


def _settings(folder: Path, part: str, **settings: object) -> None:
    path = folder / "open_clip_config.json"
    content = json.loads(path.read_text())
    places = {"": content["model_cfg"], "preprocess_cfg": content["preprocess_cfg"], **content["model_cfg"]}
    places[part].update(settings)
    path.write_text(json.dumps(content))


TIMM: Final = "vit_tiny_patch16_224"


def setting(part: str, **settings: object) -> Callable[[Path], None]:
    return lambda folder: _settings(folder, part, **settings)


def weights(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], None]:
    def changed(folder: Path) -> None:
        known = load_file(folder / "open_clip_model.safetensors")
        change(known)
        save_file(known, folder / "open_clip_model.safetensors")

    return changed


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            setting("vision_cfg", attentional_pool=True),
            r"model_cfg\.vision_cfg\.attentional_pool is not followed",
        ),
        (setting("text_cfg", no_causal_mask=True), "no_causal_mask is not followed"),
        (
            setting("text_cfg", tokenizer_kwargs={"clean": "canonicalize"}),
            r"text_cfg\.tokenizer_kwargs is not",
        ),
        (setting("vision_cfg", timm_model_name=TIMM), "without a timm_pool, open_clip takes the mean of the"),
        (
            setting("vision_cfg", timm_model_name=TIMM, timm_pool="avg"),
            r"vision_cfg\.timm_pool is not followed",
        ),
        (setting("preprocess_cfg", resize_mode="longest"), r"preprocess_cfg\.resize_mode is not followed"),
        (setting("preprocess_cfg", std=[0, 0, 0]), r"preprocess_cfg\.std"),
        (setting("text_cfg", heads=3), "do not fit"),
        (
            weights(lambda known: known.update({"visual.transformer.resblocks.0.ls_1.gamma": torch.ones(2)})),
            "ls_1.gamma, which is not followed here",
        ),
        (weights(lambda known: known.pop("ln_final.bias")), "lack .*final_lay"),
        (weights(lambda known: known.pop("visual.proj")), "lack 'proj'"),
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

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
import yaml
from safetensors.torch import load_file, save_file

from tests.training.conversion import folders
from training.common.errors import BundleError, RecipeError
from training.conversion import parity
from training.conversion.convert import convert
from training.conversion.parity import TEXTS, check_parity, made_images
from training.conversion.published import read_published
from training.conversion.reference import Reference
from training.models.encoder import Encoder, load_encoder
from training.models.onnx.export import export_towers
from training.models.onnx.loading import load_onnx_encoder
from training.models.texts.backbones import TEXT_TYPES
from training.recipes.load import parse_recipe

Make = Callable[[Path], None]

EVERY = pytest.mark.parametrize("make", [*folders.OF_IMAGES_AND_TEXTS, *folders.OF_IMAGES])


@EVERY
def test_a_bundle_gives_the_vectors_of_transformers(make: Make, tmp_path: Path) -> None:
    make(tmp_path / "model")
    made = convert(str(tmp_path / "model"), tmp_path / "bundle", name="mine")
    assert made.parity is not None
    assert made.parity.images > parity.LOWEST_COSINE
    encoder = load_encoder(tmp_path / "bundle", "cpu")
    vectors = encoder.embed_images(np.stack([encoder.prepare_image(i) for i in made_images().values()]))
    expected = Reference(tmp_path / "model").embed_images(list(made_images().values()))
    np.testing.assert_allclose(vectors, expected, atol=3e-3)
    # Inputs must differ, or any vectors would agree.
    assert (expected @ expected.T).min() < 0.99
    if made.parity.texts is None:
        assert made.bundle.recipe == ""
        return
    assert made.parity.texts > parity.LOWEST_COSINE
    limit = encoder.preprocessing.text.config.max_tokens
    texts = Reference(tmp_path / "model").embed_texts(TEXTS, limit)
    np.testing.assert_allclose(encoder.embed_texts(TEXTS).vectors, texts, atol=1e-4)
    assert (texts @ texts.T).min() < 0.99


@pytest.mark.slow
@EVERY
def test_towers_become_graphs(make: Make, tmp_path: Path) -> None:
    make(tmp_path / "model")
    convert(str(tmp_path / "model"), tmp_path / "bundle", name="mine")
    export_towers(load_encoder(tmp_path / "bundle", "cpu"), tmp_path / "bundle")
    assert load_onnx_encoder(tmp_path / "bundle") is not None


def test_case_11_keeps_its_vector(tmp_path: Path) -> None:
    """A SigLIP without a tokenizer, whose processor stretches a wide image."""
    folders.siglip(tmp_path / "model")
    for file in ("spiece.model", "tokenizer_config.json"):
        (tmp_path / "model" / file).unlink()
    made = convert(str(tmp_path / "model"), tmp_path / "bundle", name="mine")
    wide = made_images()["wide"]
    processor = transformers.SiglipImageProcessorPil.from_pretrained(tmp_path / "model")
    model = transformers.SiglipModel.from_pretrained(tmp_path / "model")
    with torch.inference_mode():
        pixels = torch.from_numpy(np.array(processor(wide, return_tensors="np")["pixel_values"]))
        expected = model.vision_model(pixel_values=pixels).pooler_output[0].numpy()
    encoder = load_encoder(tmp_path / "bundle", "cpu")
    vector = encoder.embed_images(encoder.prepare_image(wide)[None])[0]
    assert vector @ expected / np.linalg.norm(expected) > 0.99999
    assert made.bundle.config.text is None
    assert encoder.modalities == {"image"}


def test_siglip_reads_no_case_and_no_outer_spaces(tmp_path: Path) -> None:
    folders.siglip_2(tmp_path / "model")
    convert(str(tmp_path / "model"), tmp_path / "bundle", name="mine")
    encoder = load_encoder(tmp_path / "bundle", "cpu")
    first, *others = encoder.embed_texts(["a dog", "A DOG", " a dog "]).vectors
    for vector in others:
        np.testing.assert_array_equal(vector, first)
    long = "a dog runs on the beach " * 40
    embedded = encoder.embed_texts([long, long + "with two dogs"])
    np.testing.assert_array_equal(*embedded.vectors)
    assert embedded.truncations[0] is not None
    assert embedded.truncations[0].kept == 64


@pytest.mark.parametrize("size", [28, 112, 126])
def test_dinov2_takes_images_of_any_size(size: int, tmp_path: Path) -> None:
    folders.dinov2(tmp_path / "model")
    made = convert(str(tmp_path / "model"), tmp_path / "bundle", name="mine", size=size)
    assert made.bundle.preprocessing.image.size == size
    assert made.bundle.preprocessing.image.resize_to == round(64 * size / 56)


def test_a_size_that_a_tower_cannot_take_is_refused(tmp_path: Path) -> None:
    folders.dinov2(tmp_path / "dinov2")
    folders.vit(tmp_path / "vit")
    with pytest.raises(RecipeError, match=r"a multiple of 14 pixels, not 100: set --image-size to 98\."):
        convert(str(tmp_path / "dinov2"), tmp_path / "bundle", name="mine", size=100)
    with pytest.raises(RecipeError, match=r"images of 64 pixels, not 100: set --image-size to 64\."):
        convert(str(tmp_path / "vit"), tmp_path / "bundle", name="mine", size=100)
    folders.convnext(tmp_path / "convnext")
    with pytest.raises(RecipeError, match="DINOv2 and DINOv3 alone"):
        convert(str(tmp_path / "convnext"), tmp_path / "bundle", name="mine", size=96)
    assert not (tmp_path / "bundle").exists()


def test_text_and_image_have_the_scale_of_the_published_softmax(tmp_path: Path) -> None:
    folders.clip(tmp_path / "model")
    made = convert(str(tmp_path / "model"), tmp_path / "bundle", name="mine")
    recipe = parse_recipe(yaml.safe_load(made.bundle.recipe), "The recipe")
    scale = load_file(tmp_path / "model" / "model.safetensors")["logit_scale"]
    assert recipe.objective.temperature == pytest.approx(float(torch.exp(-scale)))  # type: ignore[attr-defined]
    assert recipe.model == made.bundle.config
    assert recipe.preprocessing == made.bundle.preprocessing


def test_siglip_goes_on_with_its_sigmoid(tmp_path: Path) -> None:
    folders.siglip_2(tmp_path / "model")
    made = convert(str(tmp_path / "model"), tmp_path / "bundle", name="mine")
    weights = load_file(tmp_path / "model" / "model.safetensors")
    objective = yaml.safe_load(made.bundle.recipe)["objective"]
    assert objective["name"] == "sigmoid"
    assert objective["temperature"] == pytest.approx(float(torch.exp(-weights["logit_scale"])))
    assert objective["bias"] == pytest.approx(float(weights["logit_bias"]))


@pytest.mark.parametrize(
    "change",
    [
        {"mean": (0.4, 0.4, 0.4)},
        {"std": (0.3, 0.3, 0.3)},
        {"resize": "squash", "resize_to": None},
        {"resize_to": 66},
        {"filter": "nearest"},
    ],
)
def test_another_preparation_of_images_is_told(change: dict[str, object], tmp_path: Path) -> None:
    folders.dinov2(tmp_path)
    published = read_published(tmp_path)
    preparation = published.preprocessing.image
    preparation.config = preparation.config.model_copy(update=change)
    told = r"The vector of the .* image would have a cosine of .* with that of transformers"
    with pytest.raises(BundleError, match=told):
        check_parity(Encoder(published.model.eval(), published.preprocessing), Reference(tmp_path))


def test_another_reading_of_texts_is_told(tmp_path: Path) -> None:
    folders.clip(tmp_path)
    published = read_published(tmp_path)
    text = published.preprocessing.text
    text._tokens.config = text.config.model_copy(update={"max_tokens": 20})
    with pytest.raises(BundleError, match="The vector of the text '"):
        check_parity(Encoder(published.model.eval(), published.preprocessing), Reference(tmp_path))


def _config(folder: Path, **settings: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))


def _processor(folder: Path, **settings: object) -> None:
    path = folder / "preprocessor_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))


def _without_projection(folder: Path) -> None:
    file = folder / "model.safetensors"
    weights = load_file(file)
    del weights["text_projection.weight"]
    save_file(weights, file, metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda folder: _config(folder, model_type="siglip2"), "NaFlex .* fixed size"),
        *(
            (
                lambda folder, kind=kind: _config(folder, model_type=kind),
                "reads texts alone.* two spaces.* train`",
            )
            for kind in TEXT_TYPES
        ),
        (lambda folder: _config(folder, model_type="whisper"), "of type 'whisper': choose one of .*dinov2"),
        (lambda folder: (folder / "preprocessor_config.json").unlink(), "how images are prepared: put"),
        (lambda folder: _processor(folder, image_processor_type="BlipImageProcessor"), "by BlipImageProc"),
        (lambda folder: _processor(folder, do_pad=True), "has do_pad"),
        (lambda folder: _processor(folder, do_resize=False), "does not resize"),
        (lambda folder: _processor(folder, size={"height": 64, "width": 32}), "gives no squares"),
        (lambda folder: _processor(folder, do_center_crop=False), "gives no squares"),
        (lambda folder: _processor(folder, crop_size={"height": 70, "width": 70}), "which is not followed"),
        (lambda folder: _processor(folder, crop_size={"height": 64, "width": 32}), "not a square"),
        (lambda folder: _processor(folder, resample=9), "unknown filter"),
        (lambda folder: _processor(folder, image_std=[0, 0, 0]), "no mean and deviation"),
        (lambda folder: (folder / "tokenizer.json").write_text("{"), "No usable tokenizer"),
        (_without_projection, "cannot be loaded|lacks the projection"),
        (lambda folder: (folder / "model.safetensors").unlink(), "safetensors"),
    ],
)
def test_what_cannot_be_followed_is_refused(
    spoil: Callable[[Path], object], message: str, tmp_path: Path
) -> None:
    folders.clip(tmp_path / "model")
    spoil(tmp_path / "model")
    with pytest.raises(RecipeError, match=message):
        convert(str(tmp_path / "model"), tmp_path / "bundle", name="mine")
    assert not (tmp_path / "bundle").exists()


@pytest.mark.parametrize("kind", ["camembert", "mpnet", "xlm-roberta"])
def test_training_is_not_advised_for_a_text_model_that_it_refuses(kind: str, tmp_path: Path) -> None:
    folders.clip(tmp_path / "model")
    _config(tmp_path / "model", model_type=kind)
    with pytest.raises(RecipeError, match=r"reads texts alone.*choose a model of images") as refused:
        convert(str(tmp_path / "model"), tmp_path / "bundle", name="mine")
    assert "`recoquest train`" not in str(refused.value)


@pytest.mark.parametrize("half", [False, True])
def test_a_siglip_without_the_head_of_its_image_tower_is_refused(half: bool, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folders.siglip_2(folder)
    model: Any = transformers.SiglipModel.from_pretrained(folder)
    vision = model.config.vision_config
    vision.vision_use_head = False
    del model.vision_model.head
    if half:
        model = transformers.SiglipVisionModel(vision)
    model.save_pretrained(folder)
    with pytest.raises(
        RecipeError, match=r"without the head .* \(vision_use_head is false in its config\.json\)"
    ):
        convert(str(folder), tmp_path / "bundle", name="mine")
    assert not (tmp_path / "bundle").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "spoil",
    [
        lambda folder: (folder / "tokenizer.json").write_text("{}"),
        lambda folder: (folder / "tokenizer.json").write_bytes(b"\xff\xfe"),
        lambda folder: _config(folder, vision_config={**folders.VISION, "num_attention_heads": 5}),
        lambda folder: _config(folder, vision_config={**folders.VISION, "hidden_act": "nothing"}),
        lambda folder: _config(folder, vision_config={**folders.VISION, "patch_size": 0}),
        lambda folder: _config(folder, text_config=None),
        lambda folder: _processor(folder, size=None),
        lambda folder: _processor(folder, image_mean="grey"),
        lambda folder: _processor(folder, resample=[3]),
        lambda folder: _processor(folder, image_processor_type=5),
        lambda folder: (folder / "preprocessor_config.json").write_text("[]"),
        lambda folder: _processor(folder, size={"shortest_edge": 100_000}),
        lambda folder: _processor(folder, size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}),
        lambda folder: (folder / "model.safetensors").write_bytes(b"version https://git-lfs"),
    ],
)
def test_files_that_fit_nothing_are_told_in_a_sentence(
    spoil: Callable[[Path], object], tmp_path: Path
) -> None:
    folders.clip(tmp_path / "model")
    spoil(tmp_path / "model")
    with pytest.raises(RecipeError):
        convert(str(tmp_path / "model"), tmp_path / "bundle", name="mine")
    assert not (tmp_path / "bundle").exists()


def test_the_image_half_of_a_clip_has_its_projection(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = transformers.CLIPVisionConfig(**folders.VISION, projection_dim=24)
    settings = folders.crop_of(64, 64, **folders.CLIP_STATISTICS)
    model = folders.seeded(lambda: transformers.CLIPVisionModelWithProjection(config))
    folders.save(tmp_path / "model", model, "CLIPImageProcessor", settings)
    made = convert(str(tmp_path / "model"), tmp_path / "bundle", name="mine")
    assert made.bundle.dim == 24


def test_other_files_of_weights_are_nothing_to_a_model(tmp_path: Path) -> None:
    folders.clip(tmp_path / "model")
    (tmp_path / "model" / "optimizer.safetensors").write_bytes(b"damaged")
    weights = load_file(tmp_path / "model" / "model.safetensors")
    others = {f"visual.{name}": value for name, value in weights.items()} | {"ln_final.weight": torch.ones(2)}
    save_file(others, tmp_path / "model" / "open_clip_model.safetensors")
    assert convert(str(tmp_path / "model"), tmp_path / "bundle", name="mine").parity is not None


@pytest.mark.parametrize("source", ["a--b", "foo..bar", "x/y.git", "config.json"])
def test_names_that_are_none_are_told(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(RecipeError):
        convert(source, tmp_path / "bundle", name="mine")


def test_a_nested_processor_of_dinov3_is_read(tmp_path: Path) -> None:
    folders.dinov3(tmp_path / "model")
    file = tmp_path / "model" / "preprocessor_config.json"
    nested = {"image_processor": json.loads(file.read_text())}
    (tmp_path / "model" / "processor_config.json").write_text(json.dumps(nested))
    file.unlink()
    made = convert(str(tmp_path / "model"), tmp_path / "bundle", name="mine")
    assert made.bundle.preprocessing.image.filter == "bilinear"


def test_a_folder_in_use_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "dog.jpg").write_bytes(b"")
    with pytest.raises(BundleError, match="photos is not empty: give a new folder"):
        convert("anything", tmp_path / "photos", name="mine")
    assert (tmp_path / "photos" / "dog.jpg").exists()


def test_pixels_without_rescaling_keep_their_statistics(tmp_path: Path) -> None:
    folders.vit(tmp_path / "model")
    _processor(tmp_path / "model", do_rescale=False, image_mean=[127.5] * 3, image_std=[60.0] * 3)
    made = convert(str(tmp_path / "model"), tmp_path / "bundle", name="mine")
    assert made.bundle.preprocessing.image.mean == (0.5,) * 3


def test_the_settings_of_an_older_release_are_read_as_transformers_does(tmp_path: Path) -> None:
    folders.clip(tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    content = json.loads(path.read_text())
    for name in ("text_config", "vision_config"):
        content |= {name: None, f"{name}_dict": content[name]}
    path.write_text(json.dumps(content))
    assert convert(str(tmp_path / "model"), tmp_path / "bundle", name="mine").parity is not None


def test_a_character_that_fills_batches_is_read_in_texts(tmp_path: Path) -> None:
    """The padding of some CLIPs is "!"."""
    folders.clip(tmp_path / "model", pad_token="!")
    convert(str(tmp_path / "model"), tmp_path / "bundle", name="mine")
    texts = ["!!!", "a dog!!! runs", "! a dog", "a dog"]
    vectors = load_encoder(tmp_path / "bundle", "cpu").embed_texts(texts).vectors
    expected = Reference(tmp_path / "model").embed_texts(texts, 24)
    np.testing.assert_allclose(vectors, expected, atol=1e-4)
    assert (expected @ expected.T).min() < 0.99


def test_the_files_of_an_older_release_are_read(tmp_path: Path) -> None:
    """Sizes as plain numbers, and a feature extractor in place of the image processor."""
    folders.clip(tmp_path / "model")
    old = {
        "feature_extractor_type": "CLIPFeatureExtractor",
        "size": 64,
        "crop_size": 64,
        "do_center_crop": True,
        "do_normalize": True,
        "do_resize": True,
        "resample": 3,
        **folders.CLIP_STATISTICS,
    }
    (tmp_path / "model" / "preprocessor_config.json").write_text(json.dumps(old))
    made = convert(str(tmp_path / "model"), tmp_path / "bundle", name="mine")
    assert made.bundle.preprocessing.image.size == 64


def test_a_bundle_is_told_from_a_published_encoder(tmp_path: Path) -> None:
    folders.clip(tmp_path / "clip")
    convert(str(tmp_path / "clip"), tmp_path / "bundle", name="mine")
    with pytest.raises(RecipeError, match=r"bundle of recoquest already: .*`recoquest index NAME --bundle "):
        convert(str(tmp_path / "bundle"), tmp_path / "again", name="mine")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text("{}")
    with pytest.raises(RecipeError, match="names no model_type"):
        convert(str(tmp_path / "other"), tmp_path / "again", name="mine")
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize("name", ["../x", "a/b", "a\\b", "", ".", "a\nb", " a", "a ", "x" * 101, "-a"])
def test_what_is_no_name_is_refused_before_any_work(name: str, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="cannot have the name"):
        convert(str(tmp_path / "missing"), tmp_path / "bundle", name=name)


@pytest.mark.parametrize("name", ["x", "CLIP ViT-B-32", "clip(1)", "Röntgen", "x" * 100])
def test_names_of_folders_are_names_of_bundles(name: str, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="There is no folder"):
        convert(str(tmp_path / "missing"), tmp_path / "bundle", name=name)


def test_the_name_of_a_special_token_is_read_by_its_letters(tmp_path: Path) -> None:
    """CLIP of transformers reads nothing behind such a name, and could be kept from words so."""
    folders.clip(tmp_path / "clip")
    convert(str(tmp_path / "clip"), tmp_path / "bundle", name="mine")
    encoder, reference = load_encoder(tmp_path / "bundle", "cpu"), Reference(tmp_path / "clip")
    texts = ["a <|endoftext|> dog", "a <|endoftext|> red hat", "a <|startoftext|> dog", "a dog"]
    limit = encoder.preprocessing.text.config.max_tokens
    cut, ours = reference.embed_texts(texts, limit), encoder.embed_texts(texts).vectors
    assert cut[0] @ cut[1] == pytest.approx(1, abs=1e-4)
    assert (ours @ ours.T - np.eye(4)).max() < 0.999

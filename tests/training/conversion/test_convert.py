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
from training.conversion.convert import LOWEST_COSINE, TEXTS, Conversion, check_parity, convert, made_images
from training.conversion.published import read_published
from training.conversion.references import Reference
from training.models.encoder import Encoder, load_encoder
from training.models.onnx import load_onnx_encoder
from training.models.onnx_export import export_towers
from training.models.transformers_backbones import TEXT_TYPES
from training.recipes.load import parse_recipe

Make = Callable[[Path], None]


def converted(folder: Path, size: int | None = None) -> Conversion:
    return convert(str(folder / "model"), folder / "bundle", name="mine", size=size)


def change_json(path: Path, **settings: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))


def config(**settings: object) -> Make:
    return lambda folder: change_json(folder / "config.json", **settings)


def processor(**settings: object) -> Make:
    return lambda folder: change_json(folder / "preprocessor_config.json", **settings)


EVERY = pytest.mark.parametrize("make", [*folders.OF_IMAGES_AND_TEXTS, *folders.OF_IMAGES])


@EVERY
def test_a_bundle_gives_the_vectors_of_transformers(make: Make, tmp_path: Path) -> None:
    make(tmp_path / "model")
    made = converted(tmp_path)
    assert made.parity.images > LOWEST_COSINE
    encoder = load_encoder(tmp_path / "bundle", "cpu")
    vectors = encoder.embed_images(np.stack([encoder.prepare_image(i) for i in made_images().values()]))
    expected = Reference(tmp_path / "model").embed_images(list(made_images().values()))
    np.testing.assert_allclose(vectors, expected, atol=3e-3)
    # Inputs must differ, or any vectors would agree.
    assert (expected @ expected.T).min() < 0.99
    if made.parity.texts is None:
        assert made.bundle.recipe == ""
        return
    assert made.parity.texts > LOWEST_COSINE
    limit = encoder.preprocessing.text.config.max_tokens
    texts = Reference(tmp_path / "model").embed_texts(TEXTS, limit)
    np.testing.assert_allclose(encoder.embed_texts(TEXTS).vectors, texts, atol=1e-4)
    assert (texts @ texts.T).min() < 0.99


@pytest.mark.slow
@EVERY
def test_towers_become_graphs(make: Make, tmp_path: Path) -> None:
    make(tmp_path / "model")
    converted(tmp_path)
    export_towers(load_encoder(tmp_path / "bundle", "cpu"), tmp_path / "bundle")
    assert load_onnx_encoder(tmp_path / "bundle") is not None


def test_a_siglip_without_a_tokenizer_searches_by_images_alone(tmp_path: Path) -> None:
    folders.siglip(tmp_path / "model")
    for file in ("spiece.model", "tokenizer_config.json"):
        (tmp_path / "model" / file).unlink()
    made = converted(tmp_path)
    assert made.parity.images > LOWEST_COSINE
    assert made.bundle.config.text is None
    assert load_encoder(tmp_path / "bundle", "cpu").modalities == {"image"}


def test_siglip_reads_no_case_and_no_outer_spaces(tmp_path: Path) -> None:
    folders.siglip_2(tmp_path / "model")
    converted(tmp_path)
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
    made = converted(tmp_path, size)
    assert made.bundle.preprocessing.image.size == size
    assert made.bundle.preprocessing.image.resize_to == round(64 * size / 56)


@pytest.mark.parametrize(
    ("make", "size", "message"),
    [
        (folders.dinov2, 100, r"a multiple of 14 pixels, not 100: set --image-size to 98\."),
        (folders.vit, 100, r"images of 64 pixels, not 100: set --image-size to 64\."),
        (folders.convnext, 96, "DINOv2 and DINOv3 alone"),
    ],
)
def test_a_size_that_a_tower_cannot_take_is_refused(
    make: Make, size: int, message: str, tmp_path: Path
) -> None:
    make(tmp_path / "model")
    with pytest.raises(RecipeError, match=message):
        converted(tmp_path, size)
    assert not (tmp_path / "bundle").exists()


@pytest.mark.parametrize(("make", "name"), [(folders.clip, "infonce"), (folders.siglip_2, "sigmoid")])
def test_training_starts_from_the_published_logits(make: Make, name: str, tmp_path: Path) -> None:
    make(tmp_path / "model")
    made = converted(tmp_path)
    weights = load_file(tmp_path / "model" / "model.safetensors")
    tree = yaml.safe_load(made.bundle.recipe)
    recipe = parse_recipe(tree, "The recipe")
    assert (recipe.model, recipe.preprocessing) == (made.bundle.config, made.bundle.preprocessing)
    objective = tree["objective"]
    assert objective["name"] == name
    assert objective["temperature"] == pytest.approx(float(torch.exp(-weights["logit_scale"])))
    if name == "sigmoid":
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
def test_different_image_preprocessing_is_rejected(change: dict[str, object], tmp_path: Path) -> None:
    folders.dinov2(tmp_path)
    published = read_published(tmp_path)
    preparation = published.preprocessing.image
    preparation.config = preparation.config.model_copy(update=change)
    message = r"The vector of the .* image would have a cosine of .* with that of transformers"
    with pytest.raises(BundleError, match=message):
        check_parity(Encoder(published.model.eval(), published.preprocessing), Reference(tmp_path))


def test_different_tokenization_is_rejected(tmp_path: Path) -> None:
    folders.clip(tmp_path)
    published = read_published(tmp_path)
    text = published.preprocessing.text
    text._tokens.config = text.config.model_copy(update={"max_tokens": 20})
    with pytest.raises(BundleError, match="The vector of the text '"):
        check_parity(Encoder(published.model.eval(), published.preprocessing), Reference(tmp_path))


def _without_projection(folder: Path) -> None:
    file = folder / "model.safetensors"
    weights = load_file(file)
    del weights["text_projection.weight"]
    save_file(weights, file, metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (config(model_type="siglip2"), "NaFlex .* fixed size"),
        *((config(model_type=kind), "reads texts alone.* two spaces.* train`") for kind in TEXT_TYPES),
        *(
            (config(model_type=kind), "^(?!.*recoquest train`).*texts alone.*choose a model of images")
            for kind in ("camembert", "mpnet", "xlm-roberta")
        ),
        (config(model_type="whisper"), "of type 'whisper': choose one of .*dinov2"),
        (lambda folder: (folder / "preprocessor_config.json").unlink(), "how images are prepared: put"),
        (processor(image_processor_type="BlipImageProcessor"), "by BlipImageProc"),
        (processor(do_pad=True), "has do_pad"),
        (processor(do_resize=False), "does not resize"),
        (processor(size={"height": 64, "width": 32}), "gives no squares"),
        (processor(do_center_crop=False), "gives no squares"),
        (processor(crop_size={"height": 70, "width": 70}), "which is not followed"),
        (processor(crop_size={"height": 64, "width": 32}), "not a square"),
        (processor(resample=9), "unknown filter"),
        (processor(image_std=[0, 0, 0]), "no mean and deviation"),
        (lambda folder: (folder / "tokenizer.json").write_text("{"), "No usable tokenizer"),
        (_without_projection, "cannot be loaded|lacks the projection"),
        (lambda folder: (folder / "model.safetensors").unlink(), "safetensors"),
    ],
)
def test_what_cannot_be_followed_is_refused(spoil: Make, message: str, tmp_path: Path) -> None:
    folders.clip(tmp_path / "model")
    spoil(tmp_path / "model")
    with pytest.raises(RecipeError, match=message):
        converted(tmp_path)
    assert not (tmp_path / "bundle").exists()


@pytest.mark.parametrize("half", [False, True])
def test_a_siglip_without_the_head_of_its_image_tower_is_refused(half: bool, tmp_path: Path) -> None:
    folders.siglip_2(tmp_path / "model")
    model: Any = transformers.SiglipModel.from_pretrained(tmp_path / "model")
    model.config.vision_config.vision_use_head = False
    del model.vision_model.head
    if half:
        model = transformers.SiglipVisionModel(model.config.vision_config)
    model.save_pretrained(tmp_path / "model")
    with pytest.raises(RecipeError, match=r"without the head .* \(vision_use_head is false in its config"):
        converted(tmp_path)
    assert not (tmp_path / "bundle").exists()


def vision(**settings: object) -> Make:
    return config(vision_config={**folders.VISION, **settings})


@pytest.mark.slow
@pytest.mark.parametrize(
    "spoil",
    [
        lambda folder: (folder / "tokenizer.json").write_text("{}"),
        lambda folder: (folder / "tokenizer.json").write_bytes(b"\xff\xfe"),
        vision(num_attention_heads=5),
        vision(hidden_act="nothing"),
        vision(patch_size=0),
        config(text_config=None),
        processor(size=None),
        processor(image_mean="grey"),
        processor(resample=[3]),
        processor(image_processor_type=5),
        lambda folder: (folder / "preprocessor_config.json").write_text("[]"),
        processor(size={"shortest_edge": 100_000}),
        processor(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}),
        lambda folder: (folder / "model.safetensors").write_bytes(b"version https://git-lfs"),
    ],
)
def test_invalid_files_are_rejected(spoil: Make, tmp_path: Path) -> None:
    folders.clip(tmp_path / "model")
    spoil(tmp_path / "model")
    with pytest.raises(RecipeError):
        converted(tmp_path)
    assert not (tmp_path / "bundle").exists()


def test_the_image_half_of_a_clip_has_its_projection(tmp_path: Path) -> None:
    config = transformers.CLIPVisionConfig(**folders.VISION, projection_dim=24)
    settings = folders.crop_of(64, 64, **folders.CLIP_STATISTICS)
    model = folders.seeded(lambda: transformers.CLIPVisionModelWithProjection(config))
    folders.save(tmp_path / "model", model, "CLIPImageProcessor", settings)
    made = converted(tmp_path)
    assert made.bundle.dim == 24


def test_other_files_of_weights_are_nothing_to_a_model(tmp_path: Path) -> None:
    folders.clip(tmp_path / "model")
    (tmp_path / "model" / "optimizer.safetensors").write_bytes(b"damaged")
    weights = load_file(tmp_path / "model" / "model.safetensors")
    others = {f"visual.{name}": value for name, value in weights.items()} | {"ln_final.weight": torch.ones(2)}
    save_file(others, tmp_path / "model" / "open_clip_model.safetensors")
    converted(tmp_path)


@pytest.mark.parametrize("source", ["a--b", "foo..bar", "x/y.git", "config.json"])
def test_invalid_sources_are_rejected(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    made = converted(tmp_path)
    assert made.bundle.preprocessing.image.filter == "bilinear"


def test_a_folder_in_use_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "dog.jpg").write_bytes(b"")
    with pytest.raises(BundleError, match="photos is not empty: give a new folder"):
        convert("anything", tmp_path / "photos", name="mine")
    assert (tmp_path / "photos" / "dog.jpg").exists()


def test_pixels_without_rescaling_keep_their_statistics(tmp_path: Path) -> None:
    folders.vit(tmp_path / "model")
    processor(do_rescale=False, image_mean=[127.5] * 3, image_std=[60.0] * 3)(tmp_path / "model")
    made = converted(tmp_path)
    assert made.bundle.preprocessing.image.mean == (0.5,) * 3


def _older_names(folder: Path) -> None:
    content = json.loads((folder / "config.json").read_text())
    for name in ("text_config", "vision_config"):
        config(**{name: None, f"{name}_dict": content[name]})(folder)


def _older_processor(folder: Path) -> None:
    """Sizes as plain numbers, and a feature extractor instead of the image processor."""
    steps = {"do_center_crop": True, "do_normalize": True, "do_resize": True}
    old = {"feature_extractor_type": "CLIPFeatureExtractor", "size": 64, "crop_size": 64, "resample": 3}
    content = json.dumps({**old, **steps, **folders.CLIP_STATISTICS})
    (folder / "preprocessor_config.json").write_text(content)


@pytest.mark.parametrize("age", [_older_names, _older_processor])
def test_the_files_of_an_older_release_are_read(age: Make, tmp_path: Path) -> None:
    folders.clip(tmp_path / "model")
    age(tmp_path / "model")
    assert converted(tmp_path).bundle.preprocessing.image.size == 64


def test_a_character_that_fills_batches_is_read_in_texts(tmp_path: Path) -> None:
    """The padding of some CLIPs is "!"."""
    folders.clip(tmp_path / "model", pad_token="!")
    converted(tmp_path)
    texts = ["!!!", "a dog!!! runs", "! a dog", "a dog"]
    vectors = load_encoder(tmp_path / "bundle", "cpu").embed_texts(texts).vectors
    expected = Reference(tmp_path / "model").embed_texts(texts, 24)
    np.testing.assert_allclose(vectors, expected, atol=1e-4)
    assert (expected @ expected.T).min() < 0.99


def test_a_bundle_is_not_taken_for_a_published_encoder(tmp_path: Path) -> None:
    folders.clip(tmp_path / "model")
    converted(tmp_path)
    with pytest.raises(RecipeError, match=r"bundle of recoquest already: .*`recoquest index NAME --bundle "):
        convert(str(tmp_path / "bundle"), tmp_path / "again", name="mine")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text("{}")
    with pytest.raises(RecipeError, match="names no model_type"):
        convert(str(tmp_path / "other"), tmp_path / "again", name="mine")
    assert not (tmp_path / "again").exists()


def test_what_is_no_name_of_a_folder_is_refused_before_any_work(tmp_path: Path) -> None:
    for name in ("../x", "a/b", "a\\b", "", ".", "a\nb", " a", "a ", "x" * 101, "-a"):
        with pytest.raises(BundleError, match="cannot have the name"):
            convert(str(tmp_path / "missing"), tmp_path / "bundle", name=name)
    for name in ("x", "CLIP ViT-B-32", "clip(1)", "Röntgen", "x" * 100):
        with pytest.raises(RecipeError, match="There is no folder"):
            convert(str(tmp_path / "missing"), tmp_path / "bundle", name=name)

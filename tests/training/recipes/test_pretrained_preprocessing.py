import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.training.conversion import folders
from training.common.errors import RecipeError
from training.conversion.published import read_published
from training.models.config import ImagePreprocessingConfig
from training.recipes.load import load_recipe
from training.recipes.pretrained_preprocessing import with_pretrained_preprocessing
from training.recipes.schema import Recipe


def recipe_of(folder: Path, image: dict[str, Any]) -> Recipe:
    tree = load_recipe("fine-tuning").model_dump(mode="json")
    tree["preprocessing"]["image"] = image
    tree["model"]["image"]["pretrained"] = str(folder)
    return Recipe.model_validate(tree)


def prepared(folder: Path, **image: Any) -> ImagePreprocessingConfig:
    return with_pretrained_preprocessing(recipe_of(folder, image)).preprocessing.image


@pytest.fixture(scope="module")
def dinov2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "dinov2"
    folders.dinov2(folder)
    return folder


def test_open_settings_are_those_of_the_pretrained_tower(
    dinov2: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        image = prepared(dinov2)
    assert (image.size, image.resize, image.resize_to) == (56, "shortest_edge", 64)
    assert image.mean == (0.485, 0.456, 0.406)
    assert image.scaled_decoding
    assert said(caplog) == [scaled(dinov2)]
    # What was resolved is resolved again to the same.
    once = with_pretrained_preprocessing(recipe_of(dinov2, {}))
    assert with_pretrained_preprocessing(Recipe.model_validate(once.model_dump(mode="json"))) == once


def test_given_settings_stay_and_are_named_if_they_differ(
    dinov2: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        # Files that are decoded whole are no difference, nor is the same crop in other words.
        image = prepared(dinov2, scaled_decoding=False, size=56, resize="crop", resize_to=64)
        assert (image.size, image.resize, image.resize_to) == (56, "crop", 64)
        assert not image.scaled_decoding
        assert not said(caplog)
        image = prepared(dinov2, size=112, mean=[0.5, 0.5, 0.5], resize="squash", filter="bicubic")
    assert (image.size, image.resize, image.resize_to) == (112, "squash", None)
    assert image.mean == (0.5, 0.5, 0.5)
    assert image.std == (0.229, 0.224, 0.225)
    assert said(caplog) == [
        f"preprocessing.image.resize is squash; {dinov2} was trained with shortest_edge.",
        f"preprocessing.image.resize_to is None; {dinov2} was trained with 128.",
        f"preprocessing.image.mean is (0.5, 0.5, 0.5); {dinov2} was trained with (0.485, 0.456, 0.406).",
        scaled(dinov2),
    ]


def test_a_margin_that_the_size_does_not_leave_is_refused(tmp_path: Path) -> None:
    folders.resnet(tmp_path)
    with pytest.raises(RecipeError, match=r"preprocessing\.image does not fit .*: .*resize_to"):
        prepared(tmp_path, resize="crop", resize_to=256)


def test_a_folder_that_does_not_say_it_changes_nothing(tmp_path: Path) -> None:
    folders.dinov2(tmp_path)
    (tmp_path / "preprocessor_config.json").unlink()
    assert prepared(tmp_path).mean == ImagePreprocessingConfig().mean


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Our own warnings; transformers warns of the special tokens of small vocabularies."""
    return [record.getMessage() for record in caplog.records if record.name.startswith("training.")]


def scaled(folder: Path) -> str:
    """Of large files decoded at a scale, as recipes have it and no pretrained folder."""
    return f"preprocessing.image.scaled_decoding is True; {folder} was trained with False."


def texts_of(folder: Path, architecture: str, preprocessing: dict[str, Any], **text: Any) -> Recipe:
    tree = load_recipe("fine-tuning").model_dump(mode="json")
    tree["preprocessing"]["text"] = preprocessing
    tree["model"]["text"] = {"architecture": architecture, "pretrained": str(folder), **text}
    return with_pretrained_preprocessing(Recipe.model_validate(tree))


@pytest.mark.parametrize(
    ("write", "architecture", "pooling"),
    [
        (folders.clip, "clip_text_model", "eos"),
        (folders.siglip, "siglip_text_model", "eos"),
        (folders.siglip_2, "siglip_text_model", "eos"),
        (folders.altclip, "altclip_text_model", "cls"),
        (folders.chinese_clip, "bert", "cls"),
    ],
    ids=["clip", "siglip", "siglip_2", "altclip", "chinese_clip"],
)
def test_texts_are_read_as_by_the_bundle_of_the_same_folder(
    write: Callable[[Path], None],
    architecture: str,
    pooling: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    folder = tmp_path / "model"
    write(folder)
    bundled = read_published(folder).preprocessing.config.text.max_tokens
    with caplog.at_level(logging.WARNING):
        recipe = texts_of(folder, architecture, {})
        assert not said(caplog)
        assert recipe.model.text is not None
        assert (recipe.model.text.pooling, recipe.preprocessing.text.max_tokens) == (pooling, bundled)
        named = texts_of(folder, architecture, {"max_tokens": 12}, pooling="mean")
    assert named.model.text is not None
    assert (named.model.text.pooling, named.preprocessing.text.max_tokens) == ("mean", 12)
    assert said(caplog) == [
        f"model.text.pooling is mean; {folder} was trained with {pooling}.",
        f"preprocessing.text.max_tokens is 12; {folder} was trained with {bundled}.",
    ]


def test_a_tower_of_texts_alone_has_no_pooling_to_be_kept(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "bert", "max_position_embeddings": 512}')
    recipe = texts_of(tmp_path, "bert", {})
    assert recipe.model.text is not None
    assert (recipe.model.text.pooling, recipe.preprocessing.text.max_tokens) == ("mean", 64)

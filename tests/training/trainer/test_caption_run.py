"""Whole runs of objectives that write texts: what they leave is an image encoder, for search by image."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from tests.training.models.tiny import write_tokenizer
from tests.training.trainer.scenes import tiny_recipe, write_scenes
from tests.training.trainer.test_run import run
from training.common.errors import MissingModalityError, RecipeError
from training.common.manifest import Manifest, read_manifest
from training.evaluation.evaluate import evaluate
from training.models.encoder import load_encoder
from training.models.preprocessing import TextPreprocessing
from training.recipes.load import parse_recipe
from training.recipes.schema import Recipe
from training.trainer.setup import Extras, usable_records

pytestmark = pytest.mark.usefixtures("one_thread")


def writing_recipe(captions: dict[str, Any] | None = None, **train: object) -> Recipe:
    tree = json.loads(tiny_recipe(**{"select_by": "loss", **train}).model_dump_json())
    tree["model"] |= {"text": None, "local_features": True, "share_local_head": True}
    tree["objective"] = {"name": "caption_lstm", "width": 16}
    tree["data"]["captions"] = captions or {}
    return parse_recipe(tree, "A recipe that writes")


def test_what_is_left_is_an_image_encoder_that_is_measured_by_image(tmp_path: Path) -> None:
    scenes = write_scenes(tmp_path / "scenes", train=8, val=12)
    recipe = writing_recipe(steps=2, epochs=None, select_by="precision_at_10")
    result = run(recipe, scenes, tmp_path / "out")
    assert result.metrics["precision_at_5"] == result.metrics["image_precision_at_5"]
    encoder = load_encoder(result.bundle, "cpu")
    assert encoder.modalities == {"image"}
    pixels = encoder.prepare_image(Image.new("RGB", (20, 20), "red"))
    assert encoder.embed_images(pixels[None]).shape == (1, 8)
    with pytest.raises(MissingModalityError, match="trained without texts"):
        encoder.embed_texts(["a red square"])
    report = evaluate(encoder, read_manifest(scenes), show_progress=False)
    assert report.labels is not None
    assert report.labels.text_to_image is None


def test_writing_trains_the_head_that_is_searched_by(scenes: Path, tmp_path: Path) -> None:
    before = run(writing_recipe(steps=1, epochs=None, seed=3), scenes, tmp_path / "one").bundle
    after = run(writing_recipe(steps=3, epochs=None, seed=3), scenes, tmp_path / "three").bundle
    first, last = (load_file(bundle / "model.safetensors") for bundle in (before, after))
    assert first.keys() == last.keys()
    moved = {name for name in first if not torch.equal(first[name], last[name])}
    assert {name for name in first if "image_head" in name} <= moved


@pytest.mark.slow
def test_texts_are_learned(scenes: Path, tmp_path: Path) -> None:
    """The four colours are in the images; after some epochs most words of the train split are known."""
    run(writing_recipe(epochs=25, select_by="loss"), scenes, tmp_path / "out")
    lines = [json.loads(line) for line in (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()]
    trained = [line for line in lines if line["kind"] == "train"]
    assert trained[-1]["loss"] < 0.5 * trained[0]["loss"]
    assert trained[-1]["words_right"] > 0.5


def captions_of(recipe: Recipe, split: Manifest) -> TextPreprocessing | None:
    return Extras.of_run(recipe, split, torch.device("cpu")).captions


def test_words_are_learned_from_the_train_split_or_those_of_a_folder(scenes: Path, tmp_path: Path) -> None:
    train_split = read_manifest(scenes).split("train")
    learned = captions_of(writing_recipe(), train_split)
    assert learned is not None
    (ids,) = learned(["a red zebra"]).input_ids.tolist()
    backend = json.loads(learned.tokenizer.to_json())
    words = {number: word for word, number in backend["model"]["vocab"].items()}
    assert [words[number] for number in ids] == ["<start>", "a", "red", "<unknown>", "<end>"]
    pieces = captions_of(writing_recipe({"vocabulary": "pieces", "vocabulary_size": 300}), train_split)
    assert pieces is not None
    assert len(pieces(["zebra"]).input_ids[0]) > 3
    write_tokenizer(tmp_path)
    given = captions_of(writing_recipe({"pretrained": str(tmp_path)}), train_split)
    assert given is not None
    assert given.tokenizer.size == 300
    with pytest.raises(RecipeError, match="none"):
        captions_of(writing_recipe({"pretrained": str(tmp_path / "none")}), train_split)


def test_images_without_a_text_are_left_out(scenes: Path) -> None:
    split = read_manifest(scenes).split("train")
    silent = replace(split.records[0], texts=(), labels=())
    some = replace(split, records=(silent, *split.records[1:]))
    assert usable_records(writing_recipe(), some, frozenset({"image"})).records == split.records[1:]

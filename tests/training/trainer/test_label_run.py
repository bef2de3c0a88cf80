"""Whole runs that learn labels: what they leave is an image encoder, for search by image."""

import json
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.training.trainer.scenes import tiny_recipe, write_scenes
from tests.training.trainer.test_run import run
from training.common.errors import RecipeError
from training.common.manifest import Manifest, Rejections, read_manifest, write_manifest
from training.data.labels import Labelling, known_labels
from training.models.encoder import load_encoder
from training.recipes.load import parse_recipe
from training.recipes.schema import Recipe
from training.trainer.run_state.processes import Processes
from training.trainer.setup import Extras, build_model
from training.trainer.split_data import SplitOpener

pytestmark = pytest.mark.usefixtures("one_thread")


def label_recipe(**train: object) -> Recipe:
    tree = json.loads(tiny_recipe(**{"select_by": "loss", **train}).model_dump_json())
    tree["model"]["text"] = None
    tree["objective"] = {"name": "labels"}
    return parse_recipe(tree, "A recipe of labels")


@pytest.mark.slow
def test_labels_are_learned_and_images_of_one_are_found(tmp_path: Path) -> None:
    """Four colours: an untrained encoder ranks at random, one in four."""
    scenes = write_scenes(tmp_path / "scenes", train=24, val=24)
    result = run(label_recipe(epochs=25), scenes, tmp_path / "out")
    lines = [json.loads(line) for line in (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()]
    assert [line for line in lines if line["kind"] == "train"][-1]["right"] > 0.9
    assert result.metrics["precision_at_5"] > 80
    assert load_encoder(result.bundle, "cpu").modalities == {"image"}


def test_concepts_are_the_words_of_texts_and_no_more_than_there_are(scenes: Path, tmp_path: Path) -> None:
    tree = json.loads(tiny_recipe(steps=2, epochs=None).model_dump_json())
    tree["model"]["concepts"] = 4
    tree["objective"] = {"name": "sco", "width": 8}
    tree["data"]["captions"] = {}
    recipe = parse_recipe(tree, "A recipe of concepts")
    labelling = Extras.of_run(recipe, read_manifest(scenes).split("train"), torch.device("cpu")).labelling
    assert labelling is not None
    # Of "a red square number 3" and "something red and 3 more".
    assert labelling.names == ("more", "number", "something", "square")
    assert labelling.of_texts
    bundle = run(recipe, scenes, tmp_path / "out").bundle
    assert load_encoder(bundle, "cpu").modalities == {"image", "text"}
    tree["model"]["concepts"] = 9
    with pytest.raises(RecipeError, match=r"8 words .* set model\.concepts to 8 or less"):
        run(parse_recipe(tree, "A recipe of concepts"), scenes, tmp_path / "wrong")
    tree["model"]["concepts"] = 4
    tree["objective"] = {"name": "vse"}
    with pytest.raises(RecipeError, match=r"vse doesn't use model\.concepts"):
        run(parse_recipe({**tree, "data": {}}, "A recipe of concepts"), scenes, tmp_path / "wrong")


def test_data_without_labels_are_refused(scenes: Path, tmp_path: Path) -> None:
    (tmp_path / "images").symlink_to(scenes / "images")
    records = read_manifest(scenes).records
    write_manifest(tmp_path, [replace(record, labels=()) for record in records])
    with pytest.raises(RecipeError, match="add `labels` to images of the train split"):
        run(label_recipe(), tmp_path, tmp_path / "out")


def test_each_image_of_a_batch_has_its_own_labels_and_others_change_the_run(scenes: Path) -> None:
    recipe = label_recipe()
    split = read_manifest(scenes).split("train")
    _, preprocessing = build_model(recipe, split, load_pretrained=False)
    names = known_labels(split.records)
    with ExitStack() as resources:

        def opened(manifest: Manifest) -> tuple[torch.Tensor, str]:
            opener = SplitOpener(
                recipe,
                preprocessing,
                frozenset({"image"}),
                torch.device("cpu"),
                Processes(),
                resources,
                Extras(labelling=Labelling(names)),
            )
            data = opener.open(manifest, Rejections(len(manifest.records)), training=True)
            batch = data.batches.load(0, 0)
            assert batch.labels is not None
            assert batch.items is not None
            own = [manifest.records[row].labels for row in batch.items.tolist()]
            assert [[names.index(name) for name in labels] for labels in own] == [
                row.nonzero().flatten().tolist() for row in batch.labels
            ]
            return batch.labels, data.fingerprint

        labels, print_of = opened(split)
        assert labels.any(dim=1).all()
        bare = replace(split.records[0], labels=())
        _, other = opened(replace(split, records=(bare, *split.records[1:])))
    assert print_of != other

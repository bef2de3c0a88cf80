"""How a split is opened; broken images are counted and named, and stop a run if they are many."""

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.training.trainer.scenes import SIZE, run, tiny_recipe, write_scenes
from training.common.errors import DataError
from training.common.manifest import Manifest, Rejections, read_manifest
from training.data.image_source import PreparedImages
from training.data.labels import Labelling, known_labels
from training.data.prepared_rows import PreparedRows
from training.imaging.images import decode_image
from training.models.config import Modality
from training.models.preprocessing import ImagePreprocessing
from training.objectives.base import Objective
from training.objectives.labels import Labels
from training.recipes.schema import Recipe
from training.trainer.batches import Batch
from training.trainer.run_state.checkpoint import load_checkpoint
from training.trainer.run_state.processes import Processes
from training.trainer.setup import ObjectiveResources, build_model
from training.trainer.split_data import SplitOpener

BROKEN = b"not an image"
NOTHING: Final = ObjectiveResources()


def opened(
    recipe: Recipe,
    split: Manifest,
    modalities: frozenset[Modality],
    objective: Objective | None = None,
    offered: ObjectiveResources = NOTHING,
    *,
    training: bool = True,
) -> tuple[Batch, str]:
    """The first batch of a split, and its fingerprint."""
    _, preprocessing = build_model(recipe, split, load_pretrained=False)
    with ExitStack() as resources:
        opener = SplitOpener(
            recipe, preprocessing, modalities, torch.device("cpu"), Processes(), resources, objective, offered
        )
        data = opener.open(split, Rejections(len(split.records)), training=training)
        return data.batches.load(0, 0), data.fingerprint


@pytest.mark.parametrize("crops", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_only_random_crops_are_taken_from_the_margin_that_evaluation_cuts_off(
    scenes: Path, crops: bool, training: bool
) -> None:
    recipe = tiny_recipe(
        preprocessing={"image": {"resize_to": 2 * SIZE}},
        augmentation={"crop_scale": [0.5, 1.0] if crops else [1.0, 1.0]},
    )
    split = read_manifest(scenes).split("train")
    image = opened(recipe, split, frozenset({"image", "text"}), training=training)[0].inputs.images[0]
    config = recipe.preprocessing.image
    seen = config.model_copy(update={"resize_to": None}) if crops and training else config
    known = [ImagePreprocessing(seen).to_uint8(decode_image(split.image_path(r))) for r in split.records]
    assert any(torch.equal(image, expected) for expected in known)


def test_each_image_of_a_batch_has_its_own_labels_and_others_change_the_run(scenes: Path) -> None:
    recipe = tiny_recipe(select_by="loss", model={"text": None}, objective={"name": "labels"})
    split = read_manifest(scenes).split("train")
    names = known_labels(split.records)
    bare = replace(split, records=(replace(split.records[0], labels=()), *split.records[1:]))
    prints = set()
    for manifest in (split, bare):
        offered = ObjectiveResources(labelling=Labelling(names))
        objective = Labels(embedding_dim=4, labels=len(names))
        batch, fingerprint = opened(recipe, manifest, frozenset({"image"}), objective, offered)
        has = batch.extras["labels"]
        assert isinstance(has, Tensor)
        assert batch.items is not None
        own = [manifest.records[row].labels for row in batch.items.tolist()]
        assert [[names.index(name) for name in labels] for labels in own] == [
            row.nonzero().flatten().tolist() for row in has
        ]
        assert has.any()
        prints.add(fingerprint)
    assert len(prints) == 2


def lenient(rejected: float, **changes: Any) -> Recipe:
    data = {"max_rejected": rejected} | changes.pop("data", {})
    return tiny_recipe(data=data, **changes)


def test_broken_images_are_counted_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = write_scenes(tmp_path / "data")
    (data / "images/3.png").write_bytes(BROKEN)
    (data / "images/5.png").unlink()
    result = run(lenient(0.2), data, tmp_path / "out")
    assert sorted(rejection.line for rejection in result.rejections) == [4, 6]
    assert result.rejected == 2
    assert "images/3.png" in caplog.text


def test_missing_and_broken_images_count_together(tmp_path: Path) -> None:
    data = write_scenes(tmp_path / "data")
    total = len(read_manifest(data).records)
    (data / "images/3.png").unlink()
    assert read_manifest(data, max_rejected=1.5 / total).rejections.items[0].line == 4
    (data / "images/5.png").write_bytes(BROKEN)
    with pytest.raises(DataError, match=f"1 of {total} lines and 1 of ") as stopped:
        run(lenient(1.5 / total, data={"cache_images": True}), data, tmp_path / "out")
    assert [note.split(":")[0] for note in stopped.value.__notes__] == ["Line 4", "Line 6"]
    assert not (tmp_path / "out").exists()


def test_broken_images_of_the_validation_split_are_named_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = write_scenes(tmp_path / "data", val=5)
    (data / "images/15.png").write_bytes(BROKEN)
    result = run(lenient(0.2, select_by="loss", batch_size=5), data, tmp_path / "out")
    assert [rejection.line for rejection in result.rejections] == [16]
    assert "1 of 5 lines of the validation split" in caplog.text
    assert "images/15.png" in caplog.text


def test_a_batch_of_which_one_item_is_left_stops_a_run_that_could_not_normalise_it(tmp_path: Path) -> None:
    data = write_scenes(tmp_path / "data", train=4)
    (data / "images/3.png").write_bytes(BROKEN)
    with pytest.raises(DataError, match=r"Fewer than two items .* data\.cache_images to true"):
        run(lenient(0.9, batch_size=2, data={"cache_images": False}), data, tmp_path / "out")
    assert load_checkpoint(tmp_path / "out/checkpoints/last.pt").position.step < 2


def test_cache_skips_rows_that_could_not_be_read() -> None:
    pixels = torch.arange(4, dtype=torch.uint8).view(4, 1, 1, 1).expand(4, 3, 2, 2)
    readable = [0, 2, 3]
    rows = PreparedRows(pixels.numpy(), readable, np.array(readable))
    images, kept = PreparedImages(rows).load(np.array([2, 1]))
    assert images[:, 0, 0, 0].tolist() == [3, 2]
    assert kept == [0, 1]

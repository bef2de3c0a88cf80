"""Faults that show before the first step are told before it, most of them before any image is read."""

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.training.runs import before_step
from tests.training.trainer.scenes import tiny_recipe, write_scenes
from training.common.errors import DataError, RecipeError
from training.common.manifest import Manifest, read_manifest, write_manifest
from training.models.config import Modality
from training.objectives.base import parse_objective
from training.recipes.load import parse_recipe
from training.recipes.schema import Recipe
from training.trainer import split_data
from training.trainer.loop import TrainingLoop
from training.trainer.run import train
from training.trainer.run_state.errors import TrainingError
from training.trainer.run_state.folder import RunFolder
from training.trainer.validation import check_selectable

IMAGES: frozenset[Modality] = frozenset({"image"})
TEXTS: frozenset[Modality] = frozenset({"image", "text"})
DEEP = 10


def run(recipe: Recipe, data: Path, out: Path, *, resume: bool = False) -> None:
    train(recipe, data, out, resume=resume, device="cpu", show_progress=False)


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """No image may be read."""
    monkeypatch.setattr(split_data, "open_images", lambda *_, **__: pytest.fail("images were read"))


def labelled(scenes: Path, count: int, patients: int = 0) -> Manifest:
    """So many labelled images, of so many patients; 0: that nobody knows."""
    manifest = read_manifest(scenes)
    records = [
        replace(record, group=f"p{number % patients}" if patients else None)
        for number, record in enumerate(manifest.records[:count])
    ]
    return replace(manifest, records=tuple(records))


@pytest.mark.usefixtures("unread")
def test_a_validation_split_too_small_for_the_figure_that_selects(scenes: Path, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"too small for precision_at_10.*train\.select_by to rsum or loss"):
        run(tiny_recipe(select_by="precision_at_10"), scenes, tmp_path / "out")
    data = write_scenes(tmp_path / "data", val=1)
    with pytest.raises(RecipeError, match=r"too small for rsum.* one image with texts"):
        run(tiny_recipe(), data, tmp_path / "out")


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize("select_by", ["rsum", "loss"])
def test_a_validation_split_whose_images_all_have_the_same_text(select_by: str, tmp_path: Path) -> None:
    data = write_scenes(tmp_path / "data")
    records = [
        replace(record, texts=("a square",)) if record.split == "val" else record
        for record in read_manifest(data).records
    ]
    write_manifest(data, records)
    with pytest.raises(RecipeError, match=rf"too small for {select_by},.* give it more, or none"):
        run(tiny_recipe(select_by=select_by), data, tmp_path / "out")


@pytest.mark.usefixtures("unread")
def test_a_loss_that_compares_selects_by_two_images_or_more(tmp_path: Path) -> None:
    data = write_scenes(tmp_path / "data", val=1)
    tree = tiny_recipe(select_by="loss").model_dump(mode="json")
    alone = tree | {"objective": {"name": "simclr"}, "model": tree["model"] | {"text": None}}
    with pytest.raises(RecipeError, match=r"too small for loss,.* no two images with different texts: give"):
        run(parse_recipe(tree, "The recipe"), data, tmp_path / "out")
    with pytest.raises(RecipeError, match=r"too small for loss,.* no two images: give"):
        run(parse_recipe(alone, "The recipe"), data, tmp_path / "out")


@pytest.mark.parametrize("objective", ["labels", "byol", "pixpro"])
def test_a_loss_of_each_image_by_itself_selects_by_a_single_one(objective: str) -> None:
    assert not parse_objective({"name": objective}).compares_items


def test_labels_are_searched_ten_deep_by_a_sentence_or_by_another_patient_s_image(scenes: Path) -> None:
    figure = "precision_at_10"
    check_selectable(figure, labelled(scenes, DEEP, patients=1), TEXTS)
    check_selectable(figure, labelled(scenes, DEEP + 1), IMAGES)
    check_selectable(figure, labelled(scenes, DEEP + 4, patients=4), IMAGES)
    for modalities, by_pairs, manifest in (
        (TEXTS, False, labelled(scenes, DEEP - 1)),
        (TEXTS, True, labelled(scenes, DEEP)),
        (IMAGES, False, labelled(scenes, DEEP)),
        (IMAGES, False, labelled(scenes, DEEP + 2, patients=4)),
    ):
        with pytest.raises(RecipeError, match="too small for precision_at_10"):
            check_selectable(figure, manifest, modalities, by_pairs=by_pairs)


def test_what_is_let_through_can_be_measured(tmp_path: Path) -> None:
    data = write_scenes(tmp_path / "data", val=DEEP)
    run(tiny_recipe(select_by="precision_at_10", epochs=1), data, tmp_path / "out")
    assert (tmp_path / "out/checkpoints/best.pt").exists()


@pytest.mark.usefixtures("unread")
def test_fewer_images_than_a_batch(scenes: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="Only 14 images have a text, fewer than a batch of 16"):
        run(tiny_recipe(batch_size=16), scenes, tmp_path / "out")


@pytest.mark.usefixtures("unread")
def test_a_folder_that_cannot_be_written(scenes: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(TrainingError, match=r"Nothing can be written to .*file: Not a directory"):
        run(tiny_recipe(), scenes, tmp_path / "file/out")
    assert not list(tmp_path.glob("tmp*"))


def test_a_disk_without_room_for_the_checkpoints(
    scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tiny_recipe(epochs=1), scenes, tmp_path / "whole")
    size = (tmp_path / "whole/checkpoints/last.pt").stat().st_size
    found: list[int] = []
    original = RunFolder.check_room

    def noted(folder: RunFolder, checkpoint_bytes: int, **kind: bool) -> None:
        found.append(checkpoint_bytes)
        original(folder, checkpoint_bytes, **kind)

    monkeypatch.setattr(RunFolder, "check_room", noted)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=3 * found[-1] - 1))
    with (
        before_step(TrainingLoop, 1, lambda: pytest.fail("a step was made")),
        pytest.raises(TrainingError, match=r"checkpoints of the run need .* make room, or give another"),
    ):
        run(tiny_recipe(), scenes, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert found[0] < size < 2 * found[0]
    run(tiny_recipe(epochs=1), scenes, tmp_path / "whole", resume=True)


@pytest.mark.parametrize(
    ("validated", "resumed", "files"),
    [(True, False, 3), (False, False, 2), (True, True, 2), (False, True, 2)],
)
def test_the_room_that_checkpoints_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, validated: bool, resumed: bool, files: int
) -> None:
    folder = RunFolder(tmp_path)
    if resumed:
        folder.checkpoints.mkdir()
        for path in (folder.last, folder.best):
            path.touch()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10 * files))
    folder.check_room(10, validated=validated, resumed=resumed)
    with pytest.raises(TrainingError, match="make room"):
        folder.check_room(11, validated=validated, resumed=resumed)


@pytest.mark.parametrize(("warmup", "share"), [(6, None), (7, 86), (1000, 1)])
def test_a_warm_up_that_is_longer_than_the_run(
    scenes: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, warmup: int, share: int | None
) -> None:
    """Two epochs are six steps."""
    tree = tiny_recipe().model_dump(mode="json") | {"schedule": {"warmup_steps": warmup}}

    def said() -> list[str]:
        return [line for line in caplog.messages if "warm-up" in line]

    seen: list[list[str]] = []
    with before_step(TrainingLoop, 1, lambda: seen.append(said())):
        run(parse_recipe(tree, "The recipe"), scenes, tmp_path / "out")
    expected = (
        f"The warm-up of {warmup:,} steps is longer than the run of 6: the learning rate rises to {share} % "
        "of the recipe's and no further. Set schedule.warmup_steps to less."
    )
    assert seen == [[] if share is None else [expected]]

"""The figure that selects: what a validation split must have for it, and which is better."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.training.trainer.scenes import run, tiny_recipe, write_scenes
from training.common.errors import RecipeError
from training.common.manifest import Manifest, read_manifest, write_manifest
from training.common.record import Record
from training.models.config import Modality
from training.objectives.base import parse_objective
from training.trainer import split_data
from training.trainer.validation import check_selectable, is_better

IMAGES: frozenset[Modality] = frozenset({"image"})
TEXTS: frozenset[Modality] = frozenset({"image", "text"})
SOUNDS: frozenset[Modality] = frozenset({"image", "audio"})
DEEP = 10


@pytest.mark.parametrize(
    ("changes", "val", "change", "said"),
    [
        (
            {"select_by": "precision_at_10"},
            6,
            {},
            r"too small for precision_at_10.*train\.select_by to rsum or loss",
        ),
        ({}, 1, {}, r"too small for rsum.* one image with texts"),
        ({}, 6, {"texts": ("a square",)}, "too small for rsum,.* give it more, or none"),
        ({"select_by": "loss"}, 6, {"texts": ("a square",)}, "too small for loss,.* give it more, or none"),
        (
            {"select_by": "loss"},
            1,
            {},
            "too small for loss,.* no two images with different texts: give",
        ),
        (
            {"select_by": "loss", "objective": {"name": "simclr"}, "model": {"text": None}},
            1,
            {},
            "too small for loss,.* no two images: give",
        ),
        ({}, 6, {"texts": (), "labels": ()}, "no texts"),
        ({"select_by": "precision_at_10"}, 6, {"labels": ()}, "no labels"),
    ],
)
def test_a_figure_that_the_split_cannot_give_is_refused_before_any_work(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, Any],
    val: int,
    change: dict[str, Any],
    said: str,
) -> None:
    monkeypatch.setattr(split_data, "open_images", lambda *_, **__: pytest.fail("images were read"))
    data = write_scenes(tmp_path / "data", val=val)
    records = read_manifest(data).records
    write_manifest(data, [replace(r, **change) if r.split == "val" else r for r in records])
    with pytest.raises(RecipeError, match=said):
        run(tiny_recipe(**changes), data, tmp_path / "out")


def test_a_loss_of_each_image_by_itself_selects_by_a_single_one() -> None:
    for objective in ("labels", "byol", "pixpro"):
        assert not parse_objective({"name": objective}).compares_items


def labelled(scenes: Path, count: int, patients: int = 0) -> Manifest:
    """So many labelled images, of so many patients; 0: that nobody knows."""
    manifest = read_manifest(scenes)
    records = [
        replace(record, group=f"p{number % patients}" if patients else None)
        for number, record in enumerate(manifest.records[:count])
    ]
    return replace(manifest, records=tuple(records))


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


def test_what_selects_must_be_measurable_of_sounds(scenes: Path) -> None:
    def split(change: Callable[[Record], Record]) -> Manifest:
        manifest = read_manifest(scenes)
        return replace(manifest, records=tuple(map(change, manifest.records)))

    heard, silent = split(lambda r: replace(r, audio=f"{r.id}.wav")), split(lambda r: r)
    check_selectable("rsum", heard, SOUNDS)
    check_selectable("loss", silent, SOUNDS)
    check_selectable("precision_at_10", heard, SOUNDS)
    with pytest.raises(RecipeError, match=r"no sounds: set train\.select_by to precision_at_10 or loss"):
        check_selectable("rsum", silent, SOUNDS)
    with pytest.raises(RecipeError, match=r"images alone .* set train\.select_by to precision_at_10 or loss"):
        check_selectable("rsum", heard, IMAGES)
    unlabelled = split(lambda r: replace(r, labels=()))
    with pytest.raises(RecipeError, match=r"no labels: set train\.select_by to loss"):
        check_selectable("precision_at_10", unlabelled, IMAGES)


def test_better_is_higher_except_for_the_loss() -> None:
    assert is_better("rsum", {"rsum": 2.0}, {"rsum": 1.0})
    assert not is_better("rsum", {"rsum": float("nan")}, {"rsum": 1.0})
    assert not is_better("loss", {"loss": float("nan")}, {})
    assert is_better("loss", {"loss": 1.0}, {"loss": 2.0})
    assert not is_better("loss", {"loss": 2.0}, {"loss": 2.0})
    assert is_better("rsum", {"rsum": 0.0}, {})

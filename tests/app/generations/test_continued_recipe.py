"""The recipe that goes on from a model, and fits what a collection holds."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.generations.retraining import continued_recipe, fit_recipe, settled_settings, version_name
from tests.app.conftest import make_bundle
from training.common.errors import DataError, RecipeError
from training.common.manifest import Manifest, Record, Rejections, Split
from training.models.bundle import BundleInfo, read_bundle
from training.recipes.load import dump_recipe, load_recipe
from training.recipes.schema import Recipe


def record(name: object, *texts: str, split: Split = "train", **rest: Any) -> Record:
    return Record(id=str(name), image="a.png", split=split, texts=texts, **rest)


def manifest_of(folder: Path, *records: Record) -> Manifest:
    return Manifest(folder, records, Rejections(0))


def going_on(base: BundleInfo, own: Recipe, *overrides: str) -> Recipe:
    return continued_recipe(replace(base, recipe=dump_recipe(own)), None, [*overrides])


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> BundleInfo:
    return read_bundle(make_bundle(tmp_path_factory.mktemp("retraining") / "base", seed=0))


def test_a_recipe_goes_on_shorter_and_slower_and_overrides_win(base: BundleInfo) -> None:
    own = load_recipe("reco-flickr-small")
    info = replace(base, recipe=dump_recipe(own))
    found = continued_recipe(info, None, ["train.batch_size=8"])
    assert found.optimizer.lr == pytest.approx(0.3 * own.optimizer.lr)
    assert found.optimizer.tower_lr == pytest.approx(0.3 * (own.optimizer.tower_lr or 0))
    assert (found.train.epochs, found.train.batch_size) == (5, 8)
    assert found.train.start_from == str(base.folder)
    assert continued_recipe(info, None, ["optimizer.lr=0.5", "train.epochs=1"]).optimizer.lr == 0.5
    with pytest.raises(RecipeError, match="give --recipe"):
        continued_recipe(base, None, [])


def test_a_model_of_images_alone_goes_on_with_a_recipe_of_images_alone(base: BundleInfo) -> None:
    alone = replace(base, config=base.config.model_copy(update={"text": None}))
    for recipe in (None, "fine-tuning"):
        with pytest.raises(RecipeError) as refused:
            continued_recipe(alone, recipe, [])
        assert str(refused.value) == (
            f"The model {base.name!r} encodes images alone, so judgements of texts cannot train it: index "
            "the collection with an encoder of images and texts, or give by --recipe one that learns from "
            "images alone, such as simclr-mimic-cxr."
        )
    assert continued_recipe(alone, "simclr-mimic-cxr", []).train.start_from == str(base.folder)


def test_chunks_are_tried_again_and_images_copied_only_where_it_is_said(base: BundleInfo) -> None:
    own = load_recipe("reco-flickr-small")
    for kept in (None, 16):
        assert going_on(base, own.with_chunk_size(kept)).train.chunk_size == "auto"
    assert going_on(base, own.with_chunk_size(16), "train.chunk_size=null").train.chunk_size is None
    for given, overrides, expected in (
        ("true", [], "memory"),
        ("false", [], False),
        ("true", ["data.cache_images=true"], True),
        ("memory", ["data.cache_images=false"], False),
    ):
        recipe = load_recipe("reco-flickr-small", [f"data.cache_images={given}"])
        assert going_on(base, recipe, *overrides).data.cache_images == expected


def test_recipes_of_a_chain_of_retrainings_stay_what_the_first_was(base: BundleInfo) -> None:
    own = load_recipe("reco-flickr-small")
    chain = [going_on(base, own)]
    for number in range(2):
        retrained = replace(base, folder=Path(f"retrained-{number}"))
        chain.append(going_on(retrained, chain[-1]))
        assert chain[-1].train.start_from == str(retrained.folder)
    assert chain[0].optimizer.lr == pytest.approx(0.3 * own.optimizer.lr)
    assert [each.optimizer for each in chain] == [chain[0].optimizer] * 3
    assert [each.train.epochs for each in chain] == [5] * 3


def test_what_was_set_for_a_retraining_holds_for_the_next_and_another_recipe_begins_anew(
    base: BundleInfo,
) -> None:
    sets = ["optimizer.lr=0.5", "train.epochs=3", "train.batch_size=8"]
    own = load_recipe("reco-flickr-small")
    first = continued_recipe(replace(base, recipe=dump_recipe(own)), None, sets)
    retrained = replace(base, recipe=dump_recipe(first))
    second = continued_recipe(retrained, None, [])
    assert (second.optimizer.lr, second.train.epochs, second.train.batch_size) == (0.5, 3, 8)
    other = continued_recipe(retrained, "demo-scenes", [])
    assert other.optimizer.lr == pytest.approx(0.3 * load_recipe("demo-scenes").optimizer.lr)
    assert other.train.epochs == 5


@pytest.mark.parametrize(
    ("pairs", "batch"), [(300, 256), (256, 256), (255, 16), (40, 8), (8, 8), (5, 4), (2, 2)]
)
def test_a_small_collection_has_smaller_batches(pairs: int, batch: int, tmp_path: Path) -> None:
    recipe = load_recipe("reco-flickr-small")
    assert recipe.train.batch_size == 256
    records = [record(number, f"a dog {number}") for number in range(pairs)]
    others = [record("silent"), record("held-out", "a dog", split="test")]
    fitted, changes = fit_recipe(recipe, manifest_of(tmp_path, *records, *others))
    assert fitted.train.batch_size == batch
    assert any("too few pairs" in change for change in changes) == (batch < 256)
    kept = {"train": recipe.train, "schedule": recipe.schedule}
    assert fitted.model_copy(update=kept) == recipe


def test_a_batch_is_filled_from_what_an_epoch_draws(tmp_path: Path) -> None:
    """One image of each study, every text, or a single text that an objective writes."""
    of_studies = manifest_of(
        tmp_path, *(record(n, f"a dog {n}", "two dogs", metadata={"study": str(n // 4)}) for n in range(40))
    )
    single = manifest_of(tmp_path, record("one", "a dog"), record("two", "a dog"))
    for name, settings, manifest, batch in (
        (
            "reco-flickr-small",
            ["train.batch_size=20", "data.epoch_of=images", "data.one_image_per=study"],
            *(of_studies, 8),
        ),
        ("reco-flickr-small", ["train.batch_size=64", "data.epoch_of=texts"], of_studies, 64),
        ("caption-lstm-mimic-cxr", ["data.text_unit=sentence", "train.batch_size=2"], single, 2),
    ):
        assert fit_recipe(load_recipe(name, settings), manifest)[0].train.batch_size == batch


def collection(folder: Path, train: int, val: int, *, labelled: int = 0, alike: bool = False) -> Manifest:
    """So many images with a text of their own, and further ones for validation with a label alone."""
    return manifest_of(
        folder,
        *(record(f"train{number}", f"a dog {number}") for number in range(train)),
        *(record(f"val{n}", "a dog" if alike else f"a dog {n}", split="val") for n in range(val)),
        *(record(f"l{number}", split="val", labels=("dog",)) for number in range(labelled)),
    )


@pytest.mark.parametrize(
    ("train", "val", "settled", "epochs", "warmup"),
    [
        (48, 6, (), 14, 8),
        (48, 0, (), 5, 3),
        (48, 6, ("train.epochs",), 5, 3),
        (48, 6, ("schedule.warmup_steps",), 14, 20),
        (4096, 60, (), 5, 8),
        (40960, 60, (), 5, 20),
    ],
)
def test_a_small_collection_is_gone_through_more_often_and_warms_up_shortly(
    tmp_path: Path, train: int, val: int, settled: tuple[str, ...], epochs: int, warmup: int
) -> None:
    recipe = load_recipe("fine-tuning", ["train.batch_size=256"])
    assert (recipe.train.epochs, recipe.schedule.warmup_steps) == (5, 20)
    fitted = fit_recipe(recipe, collection(tmp_path, train, val), frozenset(settled))[0]
    assert (fitted.train.epochs, fitted.schedule.warmup_steps) == (epochs, warmup)


@pytest.mark.parametrize(
    ("described", "labelled", "chosen"),
    [(50, 0, "rsum"), (49, 60, "loss"), (2, 0, "loss"), (1, 11, "precision_at_10"), (1, 10, "rsum")],
)
def test_few_images_for_validation_choose_by_a_figure_that_they_support(
    tmp_path: Path, described: int, labelled: int, chosen: str
) -> None:
    recipe, manifest = load_recipe("fine-tuning"), collection(tmp_path, 48, described, labelled=labelled)
    fitted, changes = fit_recipe(recipe, manifest)
    assert fitted.train.select_by == chosen
    assert any("chooses the epoch" in change for change in changes) == (chosen != "rsum")
    assert fit_recipe(recipe, manifest, frozenset({"train.select_by"}))[0].train.select_by == "rsum"


def test_a_loss_that_compares_nothing_chooses_no_epoch(tmp_path: Path) -> None:
    by_loss = load_recipe("fine-tuning", ["train.select_by=loss"])
    for described, chosen in ((1, "precision_at_10"), (2, "loss")):
        manifest = collection(tmp_path, 48, described, labelled=11)
        assert fit_recipe(by_loss, manifest)[0].train.select_by == chosen
    same = collection(tmp_path, 48, 60, labelled=11, alike=True)
    assert fit_recipe(load_recipe("fine-tuning"), same)[0].train.select_by == "precision_at_10"


def test_overrides_and_the_length_of_a_retrained_model_s_recipe_are_settled(base: BundleInfo) -> None:
    own = load_recipe("fine-tuning")
    info = replace(base, recipe=dump_recipe(own))
    assert settled_settings(info, None, ["train.select_by=rsum"]) == {"train.select_by"}
    again = replace(base, recipe=dump_recipe(continued_recipe(info, None, [])))
    assert {"train.epochs", "schedule.warmup_steps"} <= settled_settings(again, None, [])
    assert settled_settings(again, "fine-tuning", []) == frozenset()


@pytest.mark.parametrize("texts", [(), ("a dog",), ("a dog", "a big dog")])
@pytest.mark.parametrize("images", [1, 8])
def test_a_collection_without_texts_or_of_the_same_says_what_to_judge(
    tmp_path: Path, images: int, texts: tuple[str, ...]
) -> None:
    recipe = load_recipe("fine-tuning")
    records = [record(number, *texts[:: 1 if number % 2 else -1]) for number in range(images)]
    records.append(record("silent", not_texts=("a cat",)))
    said = "different texts.*; judge hits of at least two different searches"
    with pytest.raises(DataError, match=said if texts else "none was judged relevant to one"):
        fit_recipe(recipe, manifest_of(tmp_path, *records))
    if texts:
        fit_recipe(recipe, manifest_of(tmp_path, *records, record("another", "a cat")))


@pytest.mark.parametrize(
    ("name", "retrained", "taken", "expected"),
    [
        ("clip-src", False, (), "clip-src-2"),
        ("clip-src-2", True, ("clip-src",), "clip-src-3"),
        ("clip-src", False, ("clip-src-2", "clip-src-3"), "clip-src-4"),
        ("vit-b-32", False, (), "vit-b-32-2"),
        ("vit-b-32-2", True, (), "vit-b-32-3"),
        ("photos", True, (), "photos-2"),
        ("7", True, (), "7-2"),
    ],
)
def test_versions_of_a_model_have_names_of_their_own(
    base: BundleInfo, name: str, retrained: bool, taken: tuple[str, ...], expected: str
) -> None:
    start = "/models/before" if retrained else "null"
    info = replace(base, name=name, recipe=f"train: {{start_from: {start}}}")
    assert version_name(info, {name, *taken}) == expected
    assert version_name(replace(base, name="made elsewhere", recipe=""), ()) == "made elsewhere-2"
    # The new name is that of the recipe unless it is set.
    info = replace(base, recipe=dump_recipe(load_recipe("demo-scenes")))
    for sets, given, named in (
        ([], ("demo-scenes-2",), "demo-scenes-2"),
        (["name=mine"], ("demo-scenes-2",), "mine"),
        ([], (), "demo-scenes"),
    ):
        assert continued_recipe(info, None, sets, *given).name == named

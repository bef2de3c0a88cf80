"""The recipe that goes on from a model, and which of two models is better."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from app.lifecycle.judge import compare_models, continued_recipe, with_filled_batches
from app.lifecycle.verdict import ModelVerdict
from tests.app.conftest import make_bundle, make_manifest
from training.data.manifest import Manifest, Record, Rejections
from training.errors import RecipeError
from training.models.bundle import BundleInfo, read_bundle
from training.recipes.load import dump_recipe, load_recipe


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


def test_chunks_that_fitted_a_model_s_training_are_tried_again(base: BundleInfo) -> None:
    own = load_recipe("reco-flickr-small")
    for kept in (None, 16):
        info = replace(base, recipe=dump_recipe(own.with_chunk_size(kept)))
        assert continued_recipe(info, None, []).train.chunk_size == "auto"
    assert continued_recipe(info, None, ["train.chunk_size=null"]).train.chunk_size is None


def test_images_of_a_service_are_copied_only_where_it_is_said(base: BundleInfo) -> None:
    for own, overrides, expected in (
        ("true", [], "memory"),
        ("false", [], False),
        ("true", ["data.cache_images=true"], True),
        ("memory", ["data.cache_images=false"], False),
    ):
        recipe = load_recipe("reco-flickr-small", [f"data.cache_images={own}"])
        found = continued_recipe(replace(base, recipe=dump_recipe(recipe)), None, overrides)
        assert found.data.cache_images == expected


def test_recipes_of_a_chain_of_retrainings_stay_what_the_first_was(base: BundleInfo) -> None:
    own = load_recipe("reco-flickr-small")
    first = continued_recipe(replace(base, recipe=dump_recipe(own)), None, [])
    chain = [first]
    for number in range(2):
        retrained = replace(base, folder=Path(f"retrained-{number}"), recipe=dump_recipe(chain[-1]))
        chain.append(continued_recipe(retrained, None, []))
        assert chain[-1].train.start_from == str(retrained.folder)
    assert first.optimizer.lr == pytest.approx(0.3 * own.optimizer.lr)
    assert [each.optimizer for each in chain] == [first.optimizer] * 3
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


def test_a_model_passes_by_what_it_gains_and_never_if_it_is_the_same(
    base: BundleInfo, tmp_path: Path
) -> None:
    manifest = make_manifest(tmp_path / "data", images=12)
    other = read_bundle(make_bundle(tmp_path / "other", seed=1))
    same = read_bundle(Path(shutil.copytree(base.folder, tmp_path / "same")))

    def judged(new: BundleInfo, gain: float) -> ModelVerdict:
        found = compare_models(base, new, manifest, gain=gain, label_template="a {labels}", device="cpu")
        assert found is not None
        return found

    measured = judged(other, -1000)
    risen = measured.after - measured.before
    assert judged(other, risen - 0.1).passed
    assert not judged(other, risen + 0.1).passed
    unchanged = judged(same, -1000)
    assert unchanged.before == unchanged.after == measured.before
    assert not unchanged.passed


@pytest.mark.parametrize(
    ("pairs", "batch"), [(300, 256), (256, 256), (255, 16), (40, 8), (8, 8), (5, 4), (1, 2)]
)
def test_a_small_collection_has_smaller_batches(pairs: int, batch: int, tmp_path: Path) -> None:
    recipe = load_recipe("reco-flickr-small")
    assert recipe.train.batch_size == 256
    records = [
        Record(id=str(number), image="a.png", split="train", texts=("a dog",)) for number in range(pairs)
    ]
    silent = Record(id="silent", image="a.png", split="train")
    held_out = Record(id="held-out", image="a.png", split="test", texts=("a dog",))
    manifest = Manifest(tmp_path, (*records, silent, held_out), Rejections(0))
    filled = with_filled_batches(recipe, manifest)
    assert filled.train.batch_size == batch
    assert filled.model_copy(update={"train": recipe.train}) == recipe


def test_a_batch_is_filled_from_what_an_epoch_draws(tmp_path: Path) -> None:
    """One image of each study, or every text."""
    records = tuple(
        Record(
            id=str(number),
            image="a.png",
            split="train",
            texts=("a dog", "two dogs"),
            metadata={"study": str(number // 4)},
        )
        for number in range(40)
    )
    manifest = Manifest(tmp_path, records, Rejections(0))
    settings = ["train.batch_size=20", "data.epoch_of=images"]
    studies = load_recipe("reco-flickr-small", [*settings, "data.one_image_per=study"])
    assert with_filled_batches(studies, manifest).train.batch_size == 8
    texts = load_recipe("reco-flickr-small", ["train.batch_size=64", "data.epoch_of=texts"])
    assert with_filled_batches(texts, manifest) == texts

"""Retrainings: the recipe that continues from a model, the verdict on the new one, and what it replaces."""

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import cycle
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from app.engine import open_engine
from app.generations import retraining
from app.generations.build import build_generation, open_generation, swap_to
from app.generations.retraining import (
    compare_models,
    continued_recipe,
    decide,
    describe_held_out,
    fit_recipe,
    searched_with,
    settled_settings,
    version_name,
)
from app.generations.schemas import ModelVerdict, Outcome
from app.settings import Settings
from index.catalogue.collections import Generation
from index.engine import SearchEngine
from tests.app.conftest import COLLECTION, Indexed, make_bundle, make_manifest
from training.common.errors import DataError, RecipeError
from training.common.manifest import Manifest, Record, Rejections, Split, read_manifest, write_manifest
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
    result = continued_recipe(info, None, ["train.batch_size=8"])
    assert result.optimizer.lr == pytest.approx(0.3 * own.optimizer.lr)
    assert result.optimizer.tower_lr == pytest.approx(0.3 * (own.optimizer.tower_lr or 0))
    assert (result.train.epochs, result.train.batch_size) == (5, 8)
    assert result.train.start_from == str(base.folder)
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
    expected = "different texts.*; judge hits of at least two different searches"
    with pytest.raises(DataError, match=expected if texts else "none was judged relevant to one"):
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


def coloured(folder: Path, count: int, *, colours: int = 4) -> Manifest:
    """Held-out pictures of plain colours, which any network tells apart, with their colour as label."""
    (folder / "images").mkdir(parents=True)
    shades = np.linspace(0, 255, colours).astype(int)
    records = []
    for number in range(count):
        colour = number % colours
        shade = (int(shades[colour]), int(shades[-1 - colour]), number % 7)
        Image.new("RGB", (40, 40), shade).save(folder / "images" / f"{number}.png")
        name, text = f"images/{number}.png", (f"picture {number}",)
        records.append(Record(id=f"{number}", image=name, split="test", texts=text, labels=(f"c{colour}",)))
    write_manifest(folder, records)
    return read_manifest(folder)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> BundleInfo:
    return read_bundle(make_bundle(tmp_path_factory.mktemp("judged") / "other", seed=1))


def judged(
    base: BundleInfo, new: BundleInfo, manifest: Manifest, gain: float, metric: str | None = None
) -> ModelVerdict:
    result = compare_models(base, new, manifest, gain=gain, metric=metric, device="cpu")
    assert result is not None
    return result


def test_a_model_is_better_where_the_whole_interval_is_above_the_gain(
    base: BundleInfo, other: BundleInfo, tmp_path: Path
) -> None:
    manifest = coloured(tmp_path / "data", 104)
    measured = judged(base, other, manifest, -1000, "image_precision_at_10")
    assert measured.low is not None
    assert measured.chance is not None
    assert measured.chance < 30 < 90 < measured.after
    assert (measured.verdict, measured.passed, measured.images) == ("better", True, 104)
    for gain, better in ((measured.low - 0.1, True), (measured.low + 0.1, False)):
        result = judged(base, other, manifest, gain, "image_precision_at_10")
        assert (result.verdict, result.passed) == ("better" if better else "not better", better)
    named = judged(base, other, manifest, -1000, "precision_at_10")
    assert named == measured
    same = read_bundle(Path(shutil.copytree(base.folder, tmp_path / "same")))
    unchanged = judged(base, same, manifest, -1000, "image_precision_at_10")
    assert unchanged.before == unchanged.after == measured.before
    assert (unchanged.verdict, unchanged.passed) == ("not better", False)


def test_a_model_at_chance_is_not_better_whatever_it_gains(
    base: BundleInfo, other: BundleInfo, tmp_path: Path
) -> None:
    """The texts say nothing of the pictures, so that no model can find either by the other."""
    result = judged(base, other, coloured(tmp_path / "data", 104), -1000)
    assert (result.metric, result.verdict) == ("rsum", "not better")
    # Every 28th picture is the same, and equal pictures are equally right.
    matches = [len(range(number % 28, 104, 28)) for number in range(104)]
    missed = [sum(comb(104 - each, k) / comb(104, k) for each in matches) / 104 for k in (1, 5, 10)]
    assert result.chance == pytest.approx(2 * 100 * sum(1 - share for share in missed))


@pytest.mark.parametrize("count", [32, 99])
@pytest.mark.parametrize("metric", ["rsum", "image_precision_at_10"])
def test_few_images_are_not_enough_to_judge(
    base: BundleInfo, other: BundleInfo, tmp_path: Path, count: int, metric: str
) -> None:
    result = judged(base, other, coloured(tmp_path / "data", count), -1000, metric)
    assert (result.verdict, result.passed, result.images) == ("not enough to judge", False, count)


@pytest.mark.parametrize(("patients", "verdict"), [(24, "not enough to judge"), (30, "better")])
def test_many_images_of_few_patients_are_not_enough_either(
    base: BundleInfo, other: BundleInfo, tmp_path: Path, patients: int, verdict: str
) -> None:
    manifest = coloured(tmp_path / "data", 120)
    # Images of a patient are no candidates of one another.
    records = [
        replace(one, group=f"p{number // 4 % patients}") for number, one in enumerate(manifest.records)
    ]
    result = judged(base, other, replace(manifest, records=tuple(records)), -1000, "image_precision_at_10")
    assert result.verdict == verdict


def test_images_of_one_text_or_of_none_judge_no_model(
    base: BundleInfo, other: BundleInfo, tmp_path: Path
) -> None:
    """Every model finds each of them: rsum would be 600 before and after."""
    manifest = make_manifest(tmp_path / "data", images=12)
    held_out = [record for record in manifest.records if record.split == "test"]
    one: list[tuple[str, ...]] = [("a dog",)]
    for texts, expected in ((one, False), (one * 12, False), ([*one, ("two dogs",)], True)):
        records = tuple(
            replace(record, texts=message, labels=())
            for record, message in zip(held_out, [*texts, *[()] * len(held_out)], strict=False)
        )
        result = compare_models(base, other, replace(manifest, records=records), gain=0, device="cpu")
        assert (result is not None) == expected
        if result is not None:
            assert (result.metric, result.images, result.verdict) == ("rsum", 2, "not enough to judge")


def records_of(split: Split, *texts: tuple[str, ...], labels: int = 0) -> list[Record]:
    return [
        Record(
            id=f"{split}{n}", image="a.png", split=split, texts=message, labels=("x",) if n < labels else ()
        )
        for n, message in enumerate(texts)
    ]


def test_what_is_held_out_is_said_before_the_training(tmp_path: Path) -> None:
    def said(*records: Record) -> str:
        return describe_held_out(Manifest(tmp_path, records, Rejections(0)))

    both = (*records_of("val", ("a",), ("b",)), *records_of("test", ("a",), ("b",), ("c",), ()))
    assert said(*both) == (
        "Held out: 2 images with texts choose the epoch (val), and 3 images with texts (test) are not enough "
        "to judge the new model, so that it will wait for a person: that takes 100."
    )
    many = records_of("test", *[(f"text {number}",) for number in range(100)])
    assert said(*many).endswith("and 100 images with texts judge the new model (test).")
    for none in ((), records_of("test", ("a",), ("a",))):
        assert "none choose the epoch, and none can judge the new model" in said(*none)
    assert "and 2 images with texts (val) are not enough" in said(*records_of("val", ("a",), ("b",)))
    assert "and 2 with labels (test) are not enough" in said(*records_of("test", (), (), (), labels=2))


@dataclass(frozen=True)
class Retrained:
    """A collection that is searched in its first generation, and what a retraining of it has just trained.

    Attributes:
        engine: The index.
        settings: Its settings.
        out: Folder of the retraining.
        new: Folder of the bundle that came out of it.
        first: The generation that is searched.
        other: Another, by another model.
    """

    engine: SearchEngine
    settings: Settings
    out: Path
    new: Path
    first: Generation
    other: Generation

    def decide(self, gain: float, *, promote: bool) -> Outcome:
        new = read_bundle(self.new)
        retrained = retraining.Retrained(COLLECTION, self.out, new, None, gain, promote)
        return decide(self.engine, self.settings, retrained, batch_size=8)

    def search_in(self, generation: Generation) -> None:
        result = open_generation(self.engine, self.settings, COLLECTION, None, generation.id)
        swap_to(self.engine, self.settings, *result, batch_size=8)

    def searched(self) -> int:
        return self.engine.active(COLLECTION).generation


@pytest.fixture
def retrained(own: Indexed, tmp_path: Path) -> Iterator[Retrained]:
    settings = Settings(home=own.settings.home, device="cpu", refresh_s=0.01, keep_generations=99)
    with closing(open_engine(settings)) as engine:
        first, base = searched_with(engine.home, COLLECTION)
        out = tmp_path / "out"
        out.mkdir()
        recipe = load_recipe("demo-scenes", [f"train.start_from={base.folder}"])
        (out / "recipe.yaml").write_text(dump_recipe(recipe))
        # Enough to judge by: any network is above chance on them.
        data = coloured(out / "data", 104, colours=26)
        write_manifest(data.folder, [replace(record, texts=()) for record in data.records])
        other, encoder, _ = open_generation(
            engine, settings, COLLECTION, make_bundle(tmp_path / "other", seed=1), None
        )
        build_generation(engine, other, encoder, 8)
        yield Retrained(engine, settings, out, make_bundle(tmp_path / "new", seed=2), first, other)


def test_it_is_judged_against_what_is_searched_by_then(
    retrained: Retrained, capsys: pytest.CaptureFixture[str]
) -> None:
    waiting = retrained.decide(-1000, promote=False)
    assert (waiting.verdict, retrained.searched()) == ("waiting", retrained.first.id)
    retrained.search_in(retrained.other)
    # What has passed against the first model does not pass against this one.
    rejected = retrained.decide(1000, promote=True)
    assert f"before, by {retrained.other.digest[:12]}" in capsys.readouterr().out
    assert (rejected.verdict, rejected.generation) == ("rejected", None)
    assert retrained.searched() == retrained.other.id
    assert waiting.judgement is not None
    assert rejected.judgement is not None
    assert rejected.judgement.after == waiting.judgement.after


def test_a_model_that_few_images_judge_waits_for_a_person(
    retrained: Retrained, capsys: pytest.CaptureFixture[str]
) -> None:
    data = read_manifest(retrained.out / "data")
    write_manifest(data.folder, data.records[:32])
    outcome = retrained.decide(-1000, promote=True)
    assert (outcome.verdict, retrained.searched()) == ("waiting", retrained.first.id)
    assert outcome.judgement is not None
    assert outcome.judgement.verdict == "not enough to judge"
    assert "It takes 100 held-out images" in capsys.readouterr().out
    # A verdict of an earlier release is made again.
    path = retrained.out / "judged.json"
    kept = json.loads(path.read_text())
    for name in ("verdict", "low", "high", "chance"):
        del kept["judgement"][name]
    path.write_text(json.dumps(kept | {"judgement": kept["judgement"] | {"passed": True}}))
    assert retrained.decide(-1000, promote=True).verdict == "waiting"


@pytest.mark.parametrize("promote", [False, True])
def test_how_to_search_in_it_is_said_where_it_is_not_activated_at_once(
    retrained: Retrained, capsys: pytest.CaptureFixture[str], promote: bool
) -> None:
    outcome = retrained.decide(-1000, promote=promote)
    output = capsys.readouterr()
    advice = f"To search in it: recoquest activate {COLLECTION} {outcome.generation}"
    assert (advice in output.err) == (not promote)
    assert ("is now searched in generation" in output.out) == promote
    if promote:
        assert (outcome.verdict, outcome.generation) == ("promoted", retrained.searched())
        # It is not judged again after an attempt that was killed before it could write what came out.
        assert retrained.decide(1000, promote=False) == outcome
        assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("changes", "verdict", "judged"), [(1, "promoted", 2), (9, "waiting", 3)])
def test_a_model_that_is_searched_with_in_the_last_moment_is_not_replaced_unjudged(
    retrained: Retrained,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    changes: int,
    verdict: str,
    judged: int,
) -> None:
    left, others = iter(range(changes)), cycle([retrained.other, retrained.first])

    def swap_after_somebody_else(*arguments: Any, **named: Any) -> None:
        if next(left, None) is not None:
            retrained.search_in(next(others))
        swap_to(*arguments, **named)

    monkeypatch.setattr(retraining, "swap_to", swap_after_somebody_else)
    outcome = retrained.decide(-1000, promote=True)
    printed = capsys.readouterr().out
    assert (outcome.verdict, printed.count("the new model is better")) == (verdict, judged)
    assert outcome.generation not in (None, retrained.first.id, retrained.other.id)
    assert retrained.searched() == (outcome.generation if verdict == "promoted" else retrained.other.id)
    assert ("It was judged 3 times" in printed) == (verdict == "waiting")


@pytest.mark.parametrize("held_out", [True, False])
def test_one_that_stays_as_it_was_is_no_new_model(
    retrained: Retrained, capsys: pytest.CaptureFixture[str], held_out: bool
) -> None:
    if not held_out:
        data = read_manifest(retrained.out / "data")
        write_manifest(data.folder, [replace(record, split="train") for record in data.records])
    stayed = replace(retrained, new=retrained.engine.home.bundles_folder / retrained.first.digest)
    # Nor is it one where another is searched with by now, which it would pass against.
    retrained.search_in(retrained.other)
    outcome = stayed.decide(-1000, promote=True)
    assert (outcome.verdict, outcome.bundle, outcome.generation) == ("unchanged", None, None)
    assert (outcome.judgement is not None) == held_out
    assert retrained.searched() == retrained.other.id
    printed = capsys.readouterr().out
    assert "No epoch made the model better" in printed
    assert "there is no new model" in printed
    assert bool(re.search(r" on \d+ held-out images", printed)) == held_out
    assert "the new model " not in printed.replace("can judge the new model", "")

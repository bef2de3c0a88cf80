"""`recoquest retrain`, as a user types it, on a small collection with feedback."""

import json
import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from app.engine import open_engine
from app.settings import Settings
from index.feedback import JudgedQuery, record_judgement
from tests.app.commands import refusal
from tests.e2e.work import FURTHER, TINY, Work
from training.common.manifest import read_manifest, write_manifest
from training.models.bundle import read_bundle
from training.recipes.load import load_recipe
from training.trainer.run_state.checkpoint import load_checkpoint

pytestmark = pytest.mark.slow

SETS = [part for setting in TINY for part in ("--set", setting)]


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Work:
    """A collection that a tiny model of the demo's recipe searches, and three judgements of its hits."""
    work = Work(tmp_path_factory.mktemp("retrain"))
    work.run("sample-data", "samples", "--images", 60)
    work.run("train", "demo-scenes", "--data", work.data, "--out", "first", *SETS)
    work.run("index", "scenes", "--bundle", "first/bundle", "--data", work.data)
    train = [record.id for record in work.records if record.split == "train"]
    held_out = next(record.id for record in work.records if record.split == "test")
    with (
        closing(open_engine(Settings(home=work.folder / "home"))) as engine,
        engine.home.catalogue.write() as session,
    ):
        query = JudgedQuery(texts=("what I look for",))
        for image, relevant in ((train[0], True), (train[1], False), (held_out, True)):
            record_judgement(session, "scenes", query, image, relevant, limit=100)
    return work


def _result(work: Work, out: str) -> dict[str, object]:
    text: dict[str, object] = json.loads((work.folder / out / "result.json").read_text())
    return text


def test_a_model_that_few_images_judge_waits(work: Work) -> None:
    done = work.run("retrain", "scenes", "--out", "strict", "--gain", 1000, *FURTHER)
    assert "from feedback 1 pairs of a text and an image, and 1 that do not go together" in done.stdout
    message = "1 of 3 judgements are not learned from: 1 of images that are not for training (split train).\n"
    assert message in done.stdout
    assert "on the new model is not enough to judge" in done.stdout
    result = _result(work, "strict")
    assert result["verdict"] == "waiting"
    base = read_bundle(work.folder / "first" / "bundle").name
    assert read_bundle(work.folder / "strict" / "run" / "bundle").name == f"{base}-2"
    listed = work.run("generations", "scenes").stdout
    assert len(listed.split("active")) == 2
    assert f"{base}-2" in listed
    work.run("generations", "scenes", "--drop", result["generation"])


def test_the_manifest_has_what_was_said_of_images_for_training_only(work: Work) -> None:
    work.run("retrain", "scenes", "--out", "export", "--gain", 1000, "--set", "train.epochs=1")
    exported = {record.id: record for record in read_manifest(work.folder / "export" / "data").records}
    query = "what I look for"
    assert len(exported) == len(work.records)
    liked = [id for id, record in exported.items() if query in record.texts]
    disliked = [id for id, record in exported.items() if query in record.not_texts]
    train = [record for record in work.records if record.split == "train"]
    assert (liked, disliked) == ([train[0].id], [train[1].id])
    assert exported[liked[0]].texts.count(query) == len(train[0].texts)
    for record in work.records:
        same = exported[record.id]
        assert (same.split, same.group, same.labels) == (record.split, record.group, record.labels)
        assert same.texts[: len(record.texts)] == record.texts
        assert same.metadata == record.metadata
        path = read_manifest(work.folder / "export" / "data").image_path(same)
        assert path.read_bytes() == (work.data / record.image).read_bytes()


def test_one_in_two_processes_trains_and_is_judged_like_any_other(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECOQUEST_TRAIN_PROCESSES", "2")
    arguments = ("retrain", "scenes", "--out", "two", "--gain", 1000, "--device", "cpu")
    work.run(*arguments, "--set", "train.epochs=1")
    assert len(load_checkpoint(work.folder / "two" / "run" / "checkpoints" / "last.pt").random) == 2
    assert _result(work, "two")["verdict"] == "waiting"
    assert load_recipe(str(work.folder / "two/run/recipe.yaml")).data.cache_images == "memory"


def test_one_that_an_earlier_release_began_leaves_no_copies_of_images(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECOQUEST_TRAIN_PROCESSES", "2")
    arguments = ("retrain", "scenes", "--out", "begun", "--gain", 1000, "--device", "cpu")
    work.run(*arguments, "--set", "train.epochs=1", "--set", "data.cache_images=true")
    kept = work.folder / "begun" / "recipe.yaml"
    assert load_recipe(str(kept)).data.cache_images is True
    assert load_recipe(str(work.folder / "begun/run/recipe.yaml")).data.cache_images is True
    shutil.rmtree(work.folder / "begun" / "run")
    work.run(*arguments)
    assert load_recipe(str(work.folder / "begun/run/recipe.yaml")).data.cache_images == "memory"


def test_one_that_has_begun_takes_no_other_settings(work: Work) -> None:
    arguments = ("retrain", "scenes", "--out", "settled", "--gain", 1000)
    work.run(*arguments, *FURTHER)
    output = work.run(*arguments, *FURTHER, "--set", "optimizer.weight_decay=0.5", code=1).stderr
    assert "settled was begun with another optimizer.weight_decay" in output
    assert "name another folder by --out" in output
    assert "another " in work.run(*arguments, "--recipe", "infonce-flickr-small", code=1).stderr
    for same in (FURTHER, ()):
        assert "on the new model is not enough to judge" in work.run(*arguments, *same).stdout


def test_one_that_passes_waits_for_a_person_and_then_takes_over(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECOQUEST_REFRESH_S", "0.01")
    arguments = ("retrain", "scenes", "--out", "easy", "--gain", -1000, *FURTHER)
    done = work.run(*arguments)
    result = _result(work, "easy")
    assert result["verdict"] == "waiting"
    assert f"It waits for a person: recoquest activate scenes {result['generation']}" in done.stdout
    judgement = result["judgement"]
    assert isinstance(judgement, dict)
    assert (judgement["metric"], judgement["held_out"], judgement["passed"]) == ("rsum", "test", False)
    recipe = load_recipe(str(work.folder / "easy" / "recipe.yaml"))
    first = load_recipe(str(work.folder / "first" / "recipe.yaml"))
    assert recipe.optimizer.lr == pytest.approx(0.3 * first.optimizer.lr)
    assert recipe.data.cache_images == "memory"
    # It has a copy of the model that it starts from, even if that one is removed meanwhile.
    assert Path(recipe.train.start_from or "").parent == work.folder / "easy" / "base"
    # Given again with --promote it trains and embeds nothing again, and still waits.
    again = work.run(*arguments, "--promote")
    assert "0 images were embedded" in again.stdout
    assert _result(work, "easy") == result
    taken = work.run("activate", "scenes", result["generation"])
    assert f"now searched in generation {result['generation']}" in taken.stdout
    assert "now searched in generation 1" in work.run("rollback", "scenes").stdout


def test_one_without_anything_to_learn_begins_anew_after_more_judgements(work: Work) -> None:
    bare = work.folder / "bare"
    shutil.copytree(work.data, bare)
    write_manifest(bare, [replace(record, texts=(), labels=()) for record in work.records])
    work.run("index", "bare", "--bundle", "first/bundle", "--data", bare)
    arguments = ("retrain", "bare", "--out", "taught", "--set", "train.epochs=1", "--gain", 1000)
    assert "none was judged relevant to one" in work.run(*arguments, code=1).stderr
    train = [record.id for record in work.records if record.split == "train"]
    for image in train[:4]:
        work.run("feedback", "add", "bare", image, "--text", "a house", "--relevant")
    work.run("feedback", "add", "bare", train[4], "--text", "a house", "--not-relevant")
    refused = work.run(*arguments, code=1)
    assert "from feedback 4 pairs of a text and an image, and 0 that do not go together" in refused.stdout
    assert "1 of hits that were not relevant, whose image has no text or whose text has no" in refused.stdout
    assert "judge hits of at least two different searches as relevant" in refused.stderr
    for image in train[:4]:
        work.run("feedback", "add", "bare", image, "--text", f"the {image}", "--relevant")
    done = work.run(*arguments)
    assert "from feedback 8 pairs" in done.stdout
    assert "none choose the epoch, and none can judge the new model" in done.stdout
    assert _result(work, "taught")["verdict"] == "waiting"


def test_mistakes_are_one_sentence(work: Work) -> None:
    for arguments, words in (
        (("retrain", "nothing", "--out", "x"), "There is no collection 'nothing'"),
        (("retrain", "scenes", "--out", "x", "--recipe", "nosuch"), "nosuch"),
        (("retrain", "scenes", "--out", "x", "--set", "train.steps=5"), "exactly one of train.steps"),
    ):
        assert words in refusal(work, *arguments)

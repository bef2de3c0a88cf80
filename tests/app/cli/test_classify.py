"""`recoquest classify`, `language-model` and `--track`: what they print, write and refuse."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from app.cli.training import _image_table, _label_table, _text_table
from tests.app.commands import run_command
from tests.e2e.work import COMMAND
from tests.training.classification.images.samples import tiny_recipe as tiny_image_recipe
from tests.training.classification.images.samples import write_squares
from tests.training.classification.questions.samples import tiny_recipe as tiny_question_recipe
from tests.training.classification.questions.samples import write_vqa
from tests.training.classification.texts.samples import text_recipe, tiny_recipe, write_sst
from tests.training.language_models.samples import tiny_recipe as tiny_language_recipe
from tests.training.language_models.samples import write_sentences
from training.classification.images.config import ImageRecipe
from training.classification.images.scores import Scores
from training.classification.load import load_classification_recipe, shipped
from training.common.errors import RecipeError
from training.common.progress import console
from training.recipes.load import dump_recipe
from training.recipes.schema import NamedRecipe
from training.trainer.run_state.checkpoint import load_checkpoint
from training.trainer.run_state.errors import TrainingError

CLASSIFIES: Final = shipped().names[0]


def _trained(command: str, recipe: NamedRecipe, data: Path, out: Path, *options: str) -> tuple[str, Any]:
    """What is printed by a training of one epoch, and its results."""
    file = out.with_suffix(".yaml")
    file.write_text(dump_recipe(recipe))
    words = (command, file, "--data", data, "--out", out, "--set", "train.epochs=1", "--device", "cpu")
    printed = run_command(*words, *options).output
    return printed, json.loads((out / "results.json").read_text())


def test_classifies_says_what_it_found_and_takes_overrides(tmp_path: Path) -> None:
    given = ("classify", tiny_recipe(reclaim=True), write_sst(tmp_path / "data"), tmp_path / "out")
    printed, found = _trained(*given)
    assert found["steps"] == 6
    assert f"{100 * found['metrics']['accuracy']:.2f}" in printed
    assert "published" not in printed
    _trained(*given, "--resume")


def test_classifies_images_and_says_how_well_labels_are_told_apart(tmp_path: Path) -> None:
    data = write_squares(tmp_path / "data")
    printed, found = _trained("classify", tiny_image_recipe(), data, tmp_path / "out")
    assert found["steps"] == 5
    for figure in found["test"].values():
        assert f"{100 * figure:.2f}" in printed
    assert "6 of 12" in printed


def test_answers_questions_and_says_how_well(tmp_path: Path) -> None:
    data = write_vqa(tmp_path / "data")
    printed, found = _trained("classify", tiny_question_recipe(reclaim=True), data, tmp_path / "out")
    assert f"{100 * found['metrics']['vqa_score']:.2f}" in printed
    assert "100.00" in printed
    assert "published" not in printed


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_several_processes_are_started_and_speak_once(tmp_path: Path) -> None:
    data = write_sst(tmp_path / "data")
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(dump_recipe(tiny_recipe(reclaim=True)))
    arguments = ["classify", str(recipe), "--data", str(data), "--out", str(tmp_path / "out")]
    settings = ["--device", "cpu", "--processes", "2", "--set", "train.epochs=1"]
    ended = subprocess.run([*COMMAND, *arguments, *settings], capture_output=True, text=True, check=True)
    assert len(load_checkpoint(tmp_path / "out/checkpoints/last.pt").random) == 2
    found = json.loads((tmp_path / "out/results.json").read_text())
    assert ended.stdout.count(f"{100 * found['metrics']['accuracy']:.2f}") == 1


def test_a_run_stands_beside_the_figures_of_its_own_share(capsys: pytest.CaptureFixture[str]) -> None:
    def printed(name: str) -> str:
        metrics = {"f1": 0.5, "accuracy": 0.25}
        console().print(_text_table(text_recipe(name), metrics))
        return capsys.readouterr().out

    whole = printed("glue-bert-reclaim::mrpc")
    assert "published, BERT-large + RECLAIM" in whole
    assert re.search(r"BERT-base +│ +89.47 +│ +85.29", whole)
    share = printed("glue-share-reclaim::mrpc-0.1")
    assert re.search(r"BERT-base +│ +80.07 +│ +69.40", share)
    assert re.search(r"BERT-base \+ RECLAIM +│ +80.38 +│ +70.59", share)
    assert "89.47" not in share and "large" not in share
    assert "published" not in printed("glue-neighbours::mrpc-10")


def test_labels_stand_one_by_one_and_their_mean_beside_the_paper_s(
    capsys: pytest.CaptureFixture[str],
) -> None:
    scores = Scores({"Edema": 0.75, "Pneumonia": 0.5}, {"Edema": 3, "Fracture": 0, "Pneumonia": 4}, 20)

    def printed(name: str) -> str:
        recipe = load_classification_recipe(name)
        assert isinstance(recipe, ImageRecipe)
        console().print(_label_table(scores), _image_table(recipe, scores), sep="\n")
        return capsys.readouterr().out

    known = printed("chexpert-bundle-linear::10")
    assert re.search(r"Edema +│ +3 of 20 +│ +75.00", known)
    assert re.search(r"Fracture +│ +0 of 20 +│ +–", known)
    assert re.search(r"this run +│ +62.50 +│ +2", known)
    assert re.search(r"published, ReCo +│ +88.28 +│ +8", known)
    assert re.search(r"published, ReCo +│ +88.33", printed("chexpert-bundle-finetune::10"))
    assert "published" not in printed("labels-bundle-linear")


@pytest.mark.parametrize("tracker", ["wandb", "mlflow"])
@pytest.mark.parametrize(
    "command",
    [
        ["train", "demo-scenes", "--data", "nowhere"],
        ["language-model", "lm-ptb-vae", "--data", "nowhere"],
        ["classify", "labels-small-linear", "--data", "nowhere"],
        ["retrain", "photos"],
    ],
)
def test_a_package_that_is_missing_is_told_before_any_work(
    command: list[str], tracker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, tracker, None)
    result = run_command(*command, "--out", tmp_path / "out", "--track", tracker, code=1)
    assert isinstance(result.exception, TrainingError)
    assert f"pip install 'recoquest[{tracker}]'" in str(result.exception)


def test_trains_says_what_it_found_and_resumes(tmp_path: Path) -> None:
    data = write_sentences(tmp_path / "data")
    with (data / "train.txt").open("ab") as file:
        file.write(b"\xff\n")
    given = ("language-model", tiny_language_recipe(), data, tmp_path / "out")
    printed, found = _trained(*given, "--set", "data.max_rejected=0.1")
    assert found["steps"] == 6
    assert f"{found['test']['perplexity']:.2f}" in printed
    assert "Left out: 1 lines" in printed
    assert "published" not in printed
    _trained(*given, "--set", "data.max_rejected=0.1", "--resume")


def test_a_row_of_a_table_has_the_published_figures_beside_it(tmp_path: Path) -> None:
    data = write_sentences(tmp_path / "data", train=16, valid=8, test=8)
    small = ["model.width=8", "model.word_width=8", "train.epochs=1"]
    settings = [part for setting in small for part in ("--set", setting)]
    arguments = ("--data", data, "--out", tmp_path / "out", "--device", "cpu", *settings)
    assert "110.50" in run_command("language-model", "lm-ptb-cyc-vae", *arguments).output


@pytest.mark.parametrize(
    ("command", "recipe", "message"),
    [
        ("language-model", "lm-ptb", "lm-small"),
        ("train", "lm-small::vae", "give it to `recoquest language-model`"),
        ("classify", "bert", "glue-small"),
        ("train", CLASSIFIES, f"{CLASSIFIES} is a recipe of classification: give it to `recoquest classify`"),
    ],
)
def test_a_wrong_recipe_is_a_plain_sentence(tmp_path: Path, command: str, recipe: str, message: str) -> None:
    result = run_command(command, recipe, "--data", tmp_path, "--out", tmp_path / "out", code=1)
    assert isinstance(result.exception, RecipeError)
    assert message in str(result.exception)

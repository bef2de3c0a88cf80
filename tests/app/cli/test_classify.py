"""`recoquest classify` from the command line."""

import json
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.cli.main import build
from tests.e2e.work import COMMAND
from tests.training.classification.images.samples import tiny_recipe as tiny_image_recipe
from tests.training.classification.images.samples import write_squares
from tests.training.classification.questions.samples import tiny_recipe as tiny_question_recipe
from tests.training.classification.questions.samples import write_vqa
from tests.training.classification.texts.samples import tiny_recipe, write_sst
from training.classification.load import shipped
from training.common.errors import RecipeError
from training.recipes.load import dump_recipe
from training.trainer.run_state.checkpoint import load_checkpoint


def test_classifies_says_what_it_found_and_takes_overrides(tmp_path: Path) -> None:
    data = write_sst(tmp_path / "data")
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(dump_recipe(tiny_recipe(reclaim=True)))
    arguments = ["classify", str(recipe), "--data", str(data), "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(build(), [*arguments, "--set", "train.epochs=1", "--device", "cpu"])
    assert result.exit_code == 0, result.output
    found = json.loads((tmp_path / "out/results.json").read_text())
    assert found["steps"] == 6
    assert f"{100 * found['metrics']['accuracy']:.2f}" in result.output
    assert "published" not in result.output
    again = CliRunner().invoke(
        build(), [*arguments, "--set", "train.epochs=1", "--device", "cpu", "--resume"]
    )
    assert again.exit_code == 0, again.output


def test_classifies_images_and_says_how_well_labels_are_told_apart(tmp_path: Path) -> None:
    data = write_squares(tmp_path / "data")
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(dump_recipe(tiny_image_recipe()))
    arguments = ["classify", str(recipe), "--data", str(data), "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(build(), [*arguments, "--set", "train.epochs=1", "--device", "cpu"])
    assert result.exit_code == 0, result.output
    found = json.loads((tmp_path / "out/results.json").read_text())
    assert found["steps"] == 5
    for figure in found["test"].values():
        assert f"{100 * figure:.2f}" in result.output
    assert "6 of 12" in result.output


def test_answers_questions_and_says_how_well(tmp_path: Path) -> None:
    data = write_vqa(tmp_path / "data")
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(dump_recipe(tiny_question_recipe(reclaim=True)))
    arguments = ["classify", str(recipe), "--data", str(data), "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(build(), [*arguments, "--set", "train.epochs=1", "--device", "cpu"])
    assert result.exit_code == 0, result.output
    found = json.loads((tmp_path / "out/results.json").read_text())
    assert f"{100 * found['metrics']['vqa_score']:.2f}" in result.output
    assert "100.00" in result.output
    assert "published" not in result.output


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


def test_an_unknown_recipe_is_a_plain_sentence(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        build(), ["classify", "bert", "--data", str(tmp_path), "--out", str(tmp_path)]
    )
    assert isinstance(result.exception, RecipeError)
    with pytest.raises(RecipeError, match="glue-small"):
        raise result.exception


def test_train_names_the_command_for_its_recipes(tmp_path: Path) -> None:
    name = shipped().names[0]
    result = CliRunner().invoke(build(), ["train", name, "--data", str(tmp_path), "--out", str(tmp_path)])
    assert isinstance(result.exception, RecipeError)
    assert f"{name} is a recipe of classification: give it to `recoquest classify`" in str(result.exception)

"""`recoquest language-model` from the command line."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.cli.main import build
from tests.training.language_models.samples import tiny_recipe, write_sentences
from training.common.errors import RecipeError
from training.recipes.load import dump_recipe


def test_trains_says_what_it_found_and_resumes(tmp_path: Path) -> None:
    data = write_sentences(tmp_path / "data")
    with (data / "train.txt").open("ab") as file:
        file.write(b"\xff\n")
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(dump_recipe(tiny_recipe()))
    arguments = ["language-model", str(recipe), "--data", str(data), "--out", str(tmp_path / "out")]
    settings = ["--set", "train.epochs=1", "--set", "data.max_rejected=0.1", "--device", "cpu"]
    result = CliRunner().invoke(build(), [*arguments, *settings])
    assert result.exit_code == 0, result.output
    found = json.loads((tmp_path / "out/results.json").read_text())
    assert found["steps"] == 6
    assert f"{found['test']['perplexity']:.2f}" in result.output
    assert "Left out: 1 lines" in result.output
    assert "published" not in result.output
    again = CliRunner().invoke(build(), [*arguments, *settings, "--resume"])
    assert again.exit_code == 0, again.output


def test_a_row_of_a_table_has_the_published_figures_beside_it(tmp_path: Path) -> None:
    data = write_sentences(tmp_path / "data", train=16, valid=8, test=8)
    small = ["model.width=8", "model.word_width=8", "train.epochs=1"]
    settings = [part for setting in small for part in ("--set", setting)]
    arguments = ["--data", str(data), "--out", str(tmp_path / "out"), "--device", "cpu", *settings]
    result = CliRunner().invoke(build(), ["language-model", "lm-ptb-cyc-vae", *arguments])
    assert result.exit_code == 0, result.output
    assert "110.50" in result.output


@pytest.mark.parametrize(
    ("command", "recipe", "message"),
    [
        ("language-model", "lm-ptb", "lm-small"),
        ("train", "lm-small::vae", "give it to `recoquest language-model`"),
    ],
)
def test_a_wrong_recipe_is_a_plain_sentence(tmp_path: Path, command: str, recipe: str, message: str) -> None:
    result = CliRunner().invoke(
        build(), [command, recipe, "--data", str(tmp_path), "--out", str(tmp_path / "out")]
    )
    assert isinstance(result.exception, RecipeError)
    assert message in str(result.exception)

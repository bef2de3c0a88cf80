"""`recoquest recipes`: what is listed, printed and copied."""

from pathlib import Path

import pytest
import yaml

from tests.app.commands import run_command
from training.common.errors import RecipeError
from training.papers.load import load_classification_recipe
from training.recipes.load import load_recipe


@pytest.fixture(autouse=True)
def wide_and_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")


def test_recipes_are_listed_and_printed() -> None:
    def show(*words: str) -> str:
        return run_command("recipes", *words).output

    assert "reco-mimic-cxr" in show()
    printed = show("demo-scenes", "--set", "train.epochs=3")
    assert "epochs: 3\n" in printed
    assert "name: demo-scenes\n" in printed
    # Those of a paper one by one.
    together, single = show(), show("reco")
    assert "infonce-mimic-cxr-batch-{32,96}" in together
    assert "infonce-mimic-cxr-batch-96" in single
    assert "infonce-mimic-cxr-batch-96" not in together
    assert "reco-mimic-cxr-lambda" in single
    assert "quest" not in single
    assert len(together.splitlines()) < 250
    assert "27 runs over task x" in " ".join(together.split())
    assert "task: rte\n" in show("glue-bert-base::rte")
    # The runs of a sweep for a shell.
    listed = show("reco-mimic-cxr-lambda").splitlines()
    assert listed == [f"reco-mimic-cxr-lambda::{value}" for value in (0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 0.8)]
    assert "negative_weight: 0.4\n" in show(listed[3])
    assert len(show("glue-weight").splitlines()) == 27
    assert "cycle_epochs: 5\n" in show("lm-small::cyc-vae")


def test_a_copy_is_an_equal_recipe_of_its_own_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert (
        run_command("recipes", "copy", "demo-scenes").output
        == "Wrote demo-scenes.yaml, the recipe demo-scenes.\n"
    )
    assert load_recipe("demo-scenes.yaml") == load_recipe("demo-scenes")
    assert "base" not in yaml.safe_load(Path("demo-scenes.yaml").read_text())
    run_command("recipes", "copy", "reco-mimic-cxr-lambda::0.4")
    assert load_recipe("reco-mimic-cxr-lambda-0.4.yaml") == load_recipe("reco-mimic-cxr-lambda::0.4")
    run_command("recipes", "copy", "glue-bert-base::rte", "mine.yaml", "--set", "train.epochs=7")
    original = load_classification_recipe("glue-bert-base::rte", ["train.epochs=7", "name=mine"])
    assert load_classification_recipe("mine.yaml") == original


def test_a_copy_says_what_settings_mean(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    run_command("recipes", "copy", "demo-scenes", file)
    text = file.read_text()
    assert "  # Pairs of a step, over all processes together.\n  batch_size: 64\n" in text
    assert max(map(len, text.splitlines())) <= 110
    assert load_recipe(str(file)) == load_recipe("demo-scenes", ["name=mine"])


def test_no_file_is_replaced_unless_told_so(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("precious")
    refused = run_command("recipes", "copy", "demo-scenes", file, code=1)
    assert isinstance(refused.exception, RecipeError)
    assert "is there already" in str(refused.exception)
    assert file.read_text() == "precious"
    run_command("recipes", "copy", "demo-scenes", file, "--force")
    assert load_recipe(str(file)).name == "mine"
    for wrong in ("mine", "mine.txt", "mine::two.yaml"):
        assert "would not be read" in str(
            run_command("recipes", "copy", "demo-scenes", wrong, code=1).exception
        )


def test_a_recipe_shows_the_grid_that_it_was_tuned_with_and_passes_it_to_none(tmp_path: Path) -> None:
    note = "tuned:\n  grid:\n    optimizer.lr:\n    - 0.001\n    - 0.01\n  data: scenes\n  select_by: rsum\n"
    file = tmp_path / "mine.yaml"
    file.write_text(f"base: demo-scenes\nname: mine\n{note}")
    assert note in run_command("recipes", file).output
    (tmp_path / "other.yaml").write_text(f"base: {file}\nname: other\n")
    assert load_recipe(str(tmp_path / "other.yaml")).tuned is None

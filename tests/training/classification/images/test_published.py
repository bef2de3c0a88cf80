"""The published figures stand beside runs of the same labels, split, protocol and share alone."""

import re
from pathlib import Path

import pytest

from training.classification.images.config import ImageRecipe
from training.classification.images.published import published
from training.classification.load import load_classification_recipe

PAGE = Path(__file__).parents[4] / "docs" / "recipes.md"
ROWS = {
    "random weights, by ConVIRT": "Random Init.",
    "ImageNet, by ConVIRT": "ImageNet Init., as ConVIRT reports it",
    "ConVIRT": "ConVIRT",
    "ImageNet, by ReCo": "ImageNet Init., as ReCo reports it",
    "InfoNCE": "InfoNCE",
    "ReCo": "ReCo",
}


def rows_of(name: str, *overrides: str) -> dict[str, float]:
    recipe = load_classification_recipe(name, overrides)
    assert isinstance(recipe, ImageRecipe)
    return published(recipe)


@pytest.mark.parametrize(("protocol", "column"), [("linear", 0), ("finetune", 1)])
@pytest.mark.parametrize(("percent", "place"), [("1", 0), ("10", 1), ("100", 2)])
def test_figures_are_the_table_s(protocol: str, column: int, percent: str, place: int) -> None:
    table = PAGE.read_text(encoding="utf-8").partition("\n### Table 2\n")[2].partition("\n### ")[0]
    found = rows_of(f"chexpert-bundle-{protocol}::{percent}")
    assert found.keys() == ROWS.keys()
    for row, title in ROWS.items():
        line = re.search(rf"^\| {re.escape(title)} \|.*$", table, re.M)
        assert line is not None
        cells = [cell.split() for cell in line[0].strip("| ").split("|")[-2:]]
        assert found[row] == float(cells[column][place])


def test_other_data_stand_alone() -> None:
    assert rows_of("labels-small-linear") == {}
    assert rows_of("chexpert-random-linear::10", "data.share=0.2") == {}
    assert rows_of("chexpert-random-linear::10", "data.labels=[Edema]") == {}
    assert rows_of("chexpert-random-linear::10", "data.test_split=test") == {}

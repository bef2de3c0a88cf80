"""docs/recipes-and-papers.md: the settings in its column of ours are those of the recipes."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from tests.training.recipes.resolved import NAMES, is_encoder, settings
from tests.training.recipes.test_documented_rows import expand
from training.recipes.document import parse_value
from training.recipes.variants import OF_SWEEP

PAGE = Path(__file__).parents[3] / "docs" / "recipes-and-papers.md"
# Rows that cannot be told without a setting.
TELLING = ("batch size", "length", "optimizer", "temperature", "seed", "learning rate", "bound")


@dataclass(frozen=True)
class Claim:
    """A setting of recipes, as a cell of the page has it."""

    key: str
    value: Any
    recipes: tuple[str, ...]


@dataclass(frozen=True)
class Row:
    """A line of a table: its setting, the cell of ours, and the recipes that it is about.

    Attributes:
        of_all: Below the heading of all recipes, where each recipe that a row is about has its settings.
    """

    line: int
    setting: str
    ours: str
    recipes: tuple[str, ...]
    of_all: bool


def named(text: str) -> tuple[str, ...]:
    """The recipes that the patterns of a text name; a sweep's name stands for its runs."""
    patterns = [word for pattern in re.findall(r"`([^`=]+)`", text) for word in expand(pattern)]
    return tuple(
        name
        for name in NAMES
        if any(
            fnmatchcase(name.replace(OF_SWEEP, "-"), pattern)
            or fnmatchcase(name.partition(OF_SWEEP)[0], pattern)
            for pattern in patterns
        )
        and "small" not in name
    )


def rows() -> Iterator[Row]:
    """All rows of the page's tables that have a column of ours."""
    column, about, heading = None, "", ""
    for number, line in enumerate(PAGE.read_text(encoding="utf-8").splitlines(), 1):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            heading = line if line.startswith("#") else heading
            about = "" if line.startswith("#") or column is not None else f"{about}\n{line}"
            column = None
        elif "ours" in cells:
            column = cells.index("ours")
        elif column is not None and not line.startswith("|--"):
            recipes = named(cells[0]) or named(about)
            yield Row(number, cells[0], cells[column], recipes, heading == "## All recipes")


def claims(row: Row) -> Iterator[Claim]:
    """The settings in the cell of ours; one with `in` and a pattern is an exception from those before it."""
    told: dict[str, set[str]] = {}
    for key, text, pattern in reversed(re.findall(r"`([a-z_.]+)=([^`]+)`(?: in (`[^`]+`))?", row.ours)):
        among = set(named(pattern)) if pattern else set(row.recipes)
        chosen = (among & set(row.recipes)) - told.setdefault(key, set())
        told[key] |= chosen
        yield Claim(key, parse_value(text, key), tuple(sorted(chosen)))


ROWS = list(rows())
# LoVT's configuration of 30 % of MIMIC-CXR, as far as there are settings for it.
LOVT_TRAINING = {
    "train.batch_size": 32,
    "train.steps": None,
    "train.epochs": 100,
    "train.select_by": "loss",
    "optimizer.name": "adamw",
    "optimizer.lr": 1e-4,
    "optimizer.weight_decay": 1e-6,
    "optimizer.max_grad_norm": None,
    "schedule.name": "cosine",
    "schedule.warmup_steps": 0,
    "augmentation.crop_scale": [0.6, 1.0],
    "augmentation.scale": [0.95, 1.05],
    "augmentation.blur_kernel": 23,
    "preprocessing.image.resize": "pad",
    "preprocessing.text.max_tokens": 512,
}
TAKEN_FROM_LOVT = (
    "batch size",
    "accumulation",
    "optimizer",
    "schedule",
    "length",
    "augmentation",
    "texts in training",
    "resolution in evaluation",
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"line {row.line}")
def test_settings_of_ours_are_those_of_the_recipes(row: Row) -> None:
    for claim in claims(row):
        having = [name for name in claim.recipes if claim.key in settings(name)]
        assert having, f"no recipe that line {row.line} is about has {claim.key}"
        if row.of_all:
            assert set(claim.recipes) == set(having), f"not every recipe of line {row.line} has {claim.key}"
        other = {name: settings(name)[claim.key] for name in having}
        assert {name: value for name, value in other.items() if value != claim.value} == {}, claim.key


def test_decoding_and_the_last_batch_are_told_of_every_recipe() -> None:
    of_all = [row for row in ROWS if row.of_all]
    decoding = [name for row in of_all if row.setting.startswith("decoding") for name in row.recipes]
    with_files = {name for name in NAMES if "small" not in name and not name.startswith(("glue-", "lm-"))}
    assert sorted(decoding) == sorted(with_files)
    [last] = [row for row in of_all if row.setting == "incomplete last batch"]
    dropped, filled, kept = last.ours.split(";")
    assert dropped == "dropped of pairs"
    tasks = {name for name in NAMES if "small" not in name and not is_encoder(name)}
    of_images = {name for name in tasks if "frozen" in settings(name)}
    assert set(named(filled)) == of_images
    assert set(named(kept)) == tasks - of_images


def test_every_row_is_about_recipes_and_the_telling_ones_name_settings() -> None:
    assert len(ROWS) > 150
    for row in ROWS:
        assert row.recipes, row
        if any(word in row.setting for word in TELLING) and "evaluation" not in row.setting:
            assert list(claims(row)) or row.ours.startswith(("as ", "the same as")), row


@pytest.mark.parametrize("name", named("`lovt-*`, `{gauss,xent}-mimic-cxr-*`"))
def test_rows_of_local_uniformity_train_as_lovt_does(name: str) -> None:
    assert {key: settings(name)[key] for key in LOVT_TRAINING} == LOVT_TRAINING


def test_the_page_says_that_the_paper_takes_its_training_from_lovt() -> None:
    section = PAGE.read_text(encoding="utf-8").split("## Local uniformity")[1].split("## ")[0]
    for setting in TAKEN_FROM_LOVT:
        assert re.search(rf"^\| {setting} \| LoVT's \(3\.1\) \|", section, re.MULTILINE), setting

"""docs/research/recipes.md: every recipe of a paper is below the table that its source names."""

import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from training.objectives.base import parse_objective
from training.papers import load as papers
from training.recipes.library import PAPERS, shipped
from training.recipes.load import load_recipe

PAGE = Path(__file__).parents[3] / "docs" / "research" / "recipes.md"
TITLES = {"reco": "ReCo", "quest": "QUEST", "uniformity": "Local uniformity", "reclaim": "RECLAIM"}
BASELINES = {f"{loss}-gru-{data}" for loss in ("vse", "vse0") for data in ("flickr30k", "coco")}


def expand(pattern: str) -> list[str]:
    """The words of a shell's pattern with braces, as a shell gives them."""
    braces = re.search(r"\{([^{}]*)\}", pattern)
    if braces is None:
        return [pattern]
    before, after = pattern[: braces.start()], pattern[braces.end() :]
    return [word for option in braces[1].split(",") for word in expand(before + option + after)]


def sections() -> Iterator[tuple[str, str, str]]:
    """Paper, table and text of each section of a table."""
    paper = table = ""
    for part in re.split(r"^(?=##)", PAGE.read_text(encoding="utf-8"), flags=re.M):
        title, _, text = part.partition("\n")
        if title.startswith("## "):
            paper, table = title.removeprefix("## "), ""
        elif title.startswith("### "):
            table = title.removeprefix("### ")
        yield paper, table, text


def rows() -> dict[str, set[tuple[str, str]]]:
    """Where each recipe that a table's row names stands, as paper and table."""
    found: dict[str, set[tuple[str, str]]] = {}
    for paper, table, text in sections():
        for line in text.splitlines():
            cells = line.split("|")
            if not table or not line.startswith("|") or len(cells) < 3 or "left out" in cells[2]:
                continue
            for pattern in re.findall(r"`([^`]*)`", cells[2]):
                if not pattern.startswith("--"):
                    for name in expand(pattern):
                        found.setdefault(name, set()).add((paper, table))
    return found


ROWS = rows()
GROUPS = {name: file.group for file in shipped().files for name in file.recipes}
# Descriptions of what tasks train, by name.
TASKS: dict[str, str] = {
    name: library.tree(name)["description"]
    for library in (papers.classification_recipes(), papers.language_model_recipes())
    for file in library.files
    for name in file.recipes
}
# Those of this project, and a task that its table leaves out, are in the text alone.
IN_TEXT_ALONE = (
    "glue-small-",
    "glue-share-base::rte-",
    "glue-share-reclaim::rte-",
    "labels-",
    "lm-small::",
    "vqa-small-",
)


def test_papers_have_a_chapter_each_and_every_name_is_a_recipe() -> None:
    chapters = {paper for paper, _, _ in sections()}
    assert set(TITLES) == set(PAPERS) - {""}
    assert set(TITLES.values()) <= chapters
    assert set(ROWS) <= set(GROUPS) | set(TASKS)


@pytest.mark.parametrize("paper", TITLES)
def test_every_recipe_of_a_paper_has_a_row_of_its_table(paper: str) -> None:
    for name, group in GROUPS.items():
        if group == paper and name not in BASELINES:
            own = {table for where, table in ROWS[name] if where == TITLES[paper]}
            source = shipped().tree(name)["source"]
            assert any(numbers(table) & numbers(source) for table in own), name


def test_every_recipe_of_a_task_has_a_row_of_its_table() -> None:
    for name, description in TASKS.items():
        if not name.startswith(IN_TEXT_ALONE):
            tables = {table for _, table in ROWS[name]}
            assert any(numbers(table) & numbers(description) for table in tables), name


def numbers(text: str) -> set[str]:
    """The tables and figures that a source or a heading names: `tables 6 and 7` is two."""
    found = set()
    for kind, listed in re.findall(r"\b(table|figure)s? ((?:\d+\w?(?:, | and )?)+)", text.lower()):
        found |= {f"{kind} {number}" for number in re.findall(r"\d+", listed)}
    return found


def examples(folder: Path) -> list[Path]:
    """The files that the page shows."""
    shown = re.findall(r"^    base: .*?(?=^\S)", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    paths = [folder / f"{number}.yaml" for number, _ in enumerate(shown)]
    for path, text in zip(paths, shown, strict=True):
        path.write_text(dedent(text), encoding="utf-8")
    return paths


def test_files_that_the_page_shows_are_recipes_and_sweeps(tmp_path: Path) -> None:
    path, sweep = examples(tmp_path)
    for name in expand("{infonce,reco}-clip-{flickr30k,coco}-eager"):
        assert load_recipe(f"{path}::{name}").train.epochs == 2
        assert load_recipe(f"{path}::{name}").objective == parse_objective({"name": name.partition("-")[0]})
    for weight, seed in ((0.2, 0), (0.4, 1), (0.8, 1)):
        recipe = load_recipe(f"{sweep}::my-lambda::{weight}-{seed}")
        assert recipe.objective.model_dump()["negative_weight"] == weight
        assert (recipe.name, recipe.train.seed) == (f"my-lambda-{weight}-{seed}", seed)
    assert expand("a-{b,c}{,-d}") == ["a-b", "a-b-d", "a-c", "a-c-d"]
    assert numbers("Supplement, tables 6 and 7, row 0.2; figure 5c") == {"table 6", "table 7", "figure 5"}


@pytest.mark.parametrize("setting", ["negative_weight", "uniformity_temperature", "uniformity_weight"])
def test_a_swept_value_is_in_the_row_and_in_the_recipe(setting: str) -> None:
    """The last number of a swept recipe's name is its setting."""
    ends = {"negative_weight": "lambda", "uniformity_temperature": "tau", "uniformity_weight": "eta"}
    swept = [name for name in ROWS if re.search(rf"-{ends[setting]}(-|::|::[\d.]+-)[\d.]+$", name)]
    assert len(swept) >= 8
    for name in swept:
        value = float(re.split("-|::", name)[-1])
        assert getattr(load_recipe(name).objective, setting) == value

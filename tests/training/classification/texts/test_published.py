"""The published figures belong to the measures that a run gives, and to the data that it trained on."""

import re
from pathlib import Path

import pytest

from tests.training.classification.texts.samples import text_recipe
from training.classification.texts.published import published
from training.classification.texts.tasks import GLUE

DOCS = Path(__file__).parents[4] / "docs"
SHARES = "0.01", "0.05", "0.1", "0.2", "0.3", "0.5"


@pytest.mark.parametrize("task", sorted(GLUE))
def test_every_row_has_a_figure_for_each_name(task: str) -> None:
    names, rows = published(text_recipe(f"glue-bert-base::{task}"))
    metrics, sets = GLUE[task].metrics, GLUE[task].dev
    given = {f"{name}/{metric}" for name in sets for metric in metrics} if len(sets) > 1 else set(metrics)
    assert set(names) <= given
    for row in rows:
        assert len(row.base) == len(row.reclaim) == len(names)
        assert all(new >= old for old, new in zip(row.base, row.reclaim, strict=True))


@pytest.mark.parametrize("task", ["cola", "sst-2", "sts-b", "mnli", "qnli", "mrpc", "qqp"])
def test_a_share_has_its_own_figures_as_the_tables_have_them(task: str) -> None:
    page = (DOCS / "recipes.md").read_text()
    for kind in ("base", "reclaim"):
        found = re.search(rf"`glue-share-{kind}::{task}-.*` \| (.*) \|", page)
        assert found is not None
        for share, figures in zip(SHARES, found[1].split(", "), strict=True):
            names, (row,) = published(text_recipe(f"glue-share-{kind}::{task}-{share}"))
            ours = row.base if kind == "base" else row.reclaim
            assert len(names) == len(ours)
            # The paper has MRPC's accuracy first.
            expected = [float(figure) for figure in figures.split("/")]
            assert list(ours) == (expected[::-1] if task == "mrpc" else expected)


@pytest.mark.parametrize(
    "name",
    [
        "glue-share-base::rte-0.1",
        "glue-small-base::cola",
        "glue-weight::cola-0.5",
        "glue-neighbours::cola-10",
        "glue-bert-reclaim-cl::cola",
    ],
)
def test_what_the_tables_do_not_have_stands_alone(name: str) -> None:
    assert published(text_recipe(name)) == ((), ())


def test_a_share_of_another_size_stands_alone() -> None:
    recipe = text_recipe("glue-bert-base::cola", ["data.share=0.4"])
    assert published(recipe) == ((), ())

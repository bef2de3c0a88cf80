"""docs/recipes.md: the values in the names of its rows are settings of the recipes beside them."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.training.recipes.resolved import settings
from tests.training.recipes.test_documented_rows import expand, sections

# By paper and table, a pattern for the whole name of a row, and the settings that its groups are, in order.
VALUES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("ReCo, Supplement, table 1", r"InfoNCE-(\d+)", ("train.batch_size",)),
    ("ReCo, Supplement, table 2", r"(\d+)", ("model.dim",)),
    ("ReCo, Supplement, table [3467]", r"([\d.]+)", ("objective.negative_weight",)),
    ("ReCo, Supplement, table [56]", r"(?:InfoNCE, )?(\d)-blade (\d+)", ("model.blades", "model.dim")),
    (
        "Local uniformity, .*",
        r"(?:Uni-)?(gauss|xent) ([\d.]+).*",
        ("objective.kind", "objective.uniformity_temperature"),
    ),
    ("Local uniformity, .*", r".*, eta ([\d.]+)", ("objective.uniformity_weight",)),
    ("Local uniformity, Table 3", r".*, (mean|attention) ?.*", ("model.image.pooling",)),
    ("RECLAIM, Table 5", r"K = (\d+)", ("reclaim.neighbours",)),
    ("RECLAIM, Table 9", r"([\d.]+)", ("reclaim.weight",)),
    ("RECLAIM, Tables? [\\d ]+.*", r"(PTB|Yelp): β\(([\d.]+)\)-VAE", ("", "kl.final")),
)
# By paper, words in the name of a row, and the setting that only recipes beside such words have so.
WORDS: tuple[tuple[str, str, str, Any], ...] = (
    ("QUEST", "CLIP,", "model.image.pretrained", "openai/clip-vit-base-patch32"),
    ("QUEST", "VSE++,", "model.text.architecture", "gru"),
    ("QUEST", "shortcuts", "data.shortcut.kind", "unique"),
    ("Local uniformity", "own heads", "model.share_local_head", False),
    ("RECLAIM", "BERT-large", "model.pretrained", "google-bert/bert-large-uncased"),
    ("RECLAIM", "RoBERTa", "model.pretrained", "FacebookAI/roberta-base"),
    ("RECLAIM", "w/o ANS", "reclaim.negatives", "random"),
    ("RECLAIM", "In-batch", "reclaim.negatives", "batch"),
    ("RECLAIM", "Cyc-VAE", "kl.cycle_epochs", 10),
    ("RECLAIM", "iVAE", "model.posterior", "implicit"),
)


def rows() -> Iterator[tuple[str, str, str, str]]:
    """Paper, table, name of the row, and recipe, of every recipe that a row has in its second cell."""
    for paper, table, text in sections():
        for line in text.splitlines():
            cells = [cell.strip() for cell in line.split("|")]
            if table and line.startswith("|") and len(cells) > 3:
                for pattern in re.findall(r"`([a-z][^` ]*)`(?! *of `)", cells[2].split(";")[0]):
                    yield from ((paper, table, cells[1], name) for name in expand(pattern))


ROWS = list(rows())


@pytest.mark.parametrize(("where", "pattern", "keys"), VALUES)
def test_a_value_in_the_name_of_a_row_is_the_recipe_s(
    where: str, pattern: str, keys: tuple[str, ...]
) -> None:
    checked = 0
    for paper, table, label, name in ROWS:
        found = re.fullmatch(pattern, label, re.IGNORECASE)
        if found is None or not re.fullmatch(where, f"{paper}, {table}"):
            continue
        for key, text in zip(keys, found.groups(), strict=True):
            if key:
                value = settings(name)[key]
                expected = text.lower() if isinstance(value, str) else float(text)
                assert value == expected, (table, label, name, key)
                checked += 1
    assert checked > 0


@pytest.mark.parametrize(("paper", "word", "key", "expected"), WORDS)
def test_a_word_in_the_name_of_a_row_is_a_setting(paper: str, word: str, key: str, expected: object) -> None:
    """Recipes of other rows in the same tables have another value, or no such setting."""
    having = {(table, name) for where, table, label, name in ROWS if where == paper and word in label}
    tables, named = {table for table, _ in having}, {name for _, name in having}
    assert named
    assert {name for name in named if settings(name).get(key) != expected} == set()
    others = {name for where, table, _, name in ROWS if where == paper and table in tables} - named
    assert {name for name in others if settings(name).get(key) == expected} == set()


def test_data_tasks_and_shares_in_names_of_rows_are_those_of_recipes() -> None:
    for paper, table, label, name in ROWS:
        if paper == "QUEST" and table.startswith("Table"):
            assert ("MS-COCO" in label) == ("-coco" in name), (label, name)
        if paper == "RECLAIM" and table == "Tables 2 and 6":
            task, _, kind = label.lower().rpartition("-")
            share = float(name.rpartition("-")[2])
            assert (settings(name)["task"], settings(name)["data.share"]) == (task, share)
            assert (settings(name)["reclaim"] is not None) == (kind == "reclaim")

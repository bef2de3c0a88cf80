"""What texts give by the rules for words and findings changes with their number alone."""

import sys
from pathlib import Path

import pytest

from index.catalogue.full_text import IndexedWords
from index.catalogue.schema import RULES
from index.writes.images import findings_of
from training.clinical.findings import find_findings

_GOLDEN = Path(__file__).with_name("rules_golden.txt")
_ADVICE = (
    "# What texts give by the rules for words and findings, number {}. After a change that is meant, raise\n"
    "# RULES in index/catalogue/schema.py and run `python -m tests.index.catalogue.test_rules`.\n"
)


def _given(text: str, section: str) -> str:
    """Return what a text gives, on one line."""
    plain = text.replace("\\n", "\n")
    if section == "## Findings":
        return "; ".join(
            f"{row['start']}-{row['stop']} {row['finding']}: {row['state']}"
            + (f" (image: {row['image_finding']})" if not row["image_finding"].endswith(row["state"]) else "")
            for row in findings_of({}, plain)
        )
    words = IndexedWords.of([], plain)
    return " | ".join((words.words, words.vector, words.runs, " ".join(sorted(words.compounds))))


def _rewritten(golden: str) -> str:
    """Return the golden file as the rules of today have it."""
    lines, section = [], ""
    for line in golden.splitlines()[2:]:
        text, bar, _ = line.partition(" | ")
        section = line if line.startswith("## ") else section
        lines.append(f"{text} | {_given(text, section)}".rstrip() if bar else line)
    return _ADVICE.format(RULES) + "\n".join(lines) + "\n"


def test_what_texts_give_changes_with_the_number_of_the_rules_alone() -> None:
    golden = _GOLDEN.read_text(encoding="utf-8")
    assert _rewritten(golden).splitlines() == golden.splitlines()


@pytest.mark.parametrize(
    ("changed", "by"),
    [
        ("index.catalogue.words._STROKED", {}),
        ("index.catalogue.full_text.is_compound", str.isalpha),
        ("index.writes.images.find_findings", lambda text: find_findings(text)[:1]),
    ],
)
def test_another_rule_is_noticed(monkeypatch: pytest.MonkeyPatch, changed: str, by: object) -> None:
    monkeypatch.setattr(changed, by)
    golden = _GOLDEN.read_text(encoding="utf-8")
    assert _rewritten(golden) != golden


if __name__ == "__main__":
    before = _GOLDEN.read_text(encoding="utf-8")
    after = _rewritten(before)
    if after != before and after.splitlines()[0] == before.splitlines()[0]:
        sys.exit("Texts give something else by the same number of the rules: raise RULES.")
    _GOLDEN.write_text(after, encoding="utf-8")

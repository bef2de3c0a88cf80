"""The one table of the pages' keys: each key has one owner, and every key is told in both languages."""

import re
from pathlib import Path
from typing import Final

import pytest

PAGE: Final = Path(__file__).parents[2] / "app" / "page"
TABLE: Final = PAGE / "shared" / "keys.js"


def _table() -> dict[str, dict[str, list[str]]]:
    """The keys of each action, by where they count."""
    (text,) = re.findall(
        r"export const KEYS = \{\n(.*?)^\};", TABLE.read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    places = re.findall(r"^  (\w+): \{ (.*) \},$", text, re.MULTILINE)
    assert len(places) == len(text.splitlines())
    return {
        place: {
            action: re.findall(r"'([^']+)'", keys) for action, keys in re.findall(r"(\w+): \[(.*?)\]", row)
        }
        for place, row in places
    }


def test_a_key_and_an_action_have_one_owner() -> None:
    actions = [action for row in _table().values() for action in row]
    keys = [key for row in _table().values() for keys in row.values() for key in keys]
    assert len(actions) == len(set(actions)) > 20
    assert len(keys) == len({key.lower() for key in keys})
    assert all(keys for row in _table().values() for keys in row.values())


@pytest.mark.parametrize("language", ["en", "de"])
def test_the_box_of_keys_has_a_text_for_each(language: str) -> None:
    words = (PAGE / "words" / f"{language}.js").read_text("utf-8")
    for place, row in _table().items():
        for name in (f"in.{place}", *row):
            assert f"'keys.{name}': '" in words, name


def test_no_script_looks_at_a_letter_beside_the_table() -> None:
    letters = re.compile(r"\bkey\b(?:\.toLowerCase\(\))? === '[^' ]'")
    found = {path.name for path in PAGE.rglob("*.js") if letters.search(path.read_text("utf-8"))}
    assert found == set()

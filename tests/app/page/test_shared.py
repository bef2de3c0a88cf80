"""What all pages share: choice of a language, texts with values, and the table of keys."""

import json
import re
from typing import Any, Final

import pytest

from tests.app.page.test_texts import PAGE, evaluated

TEXTS: Final = {
    "en": {
        "films": {"one": "{count} film", "other": "{count} films of {name}"},
        "more": "{shown} of {count}",
        "english": "only here",
        "link": "See {link}.",
    },
    "de": {
        "films": {"one": "{count} Aufnahme", "other": "{count} Aufnahmen von {name}"},
        "more": "{shown} von {count}",
        "link": "Siehe {link}.",
    },
}


def run(expression: str, *, around: list[str], reader: list[str]) -> Any:
    """Evaluate an expression after the language was chosen.

    Args:
        expression: JavaScript whose value JSON can write.
        around: `lang` of an element and of those around it, from the inside; empty where one has none.
        reader: Languages of the browser.
    """
    source = (PAGE / "shared" / "words.js").read_text(encoding="utf-8")
    return evaluated(f"""
    Object.defineProperty(globalThis, 'navigator', {{ value: {{ languages: {json.dumps(reader)} }} }});
    const {{ en, de }} = {json.dumps({language: {"shared": texts} for language, texts in TEXTS.items()})};
    {re.sub(r"^import .*$", "", source, flags=re.MULTILINE)}
    const inShadow = (lang, host) => ({{ lang, parentElement: null, getRootNode: () => ({{ host }}) }});
    // The innermost is in a shadow tree.
    const place = {json.dumps(around)}.reduceRight((outer, lang, depth) =>
      (depth === 0 ? inShadow(lang, outer) : {{ lang, parentElement: outer }}), inShadow('', undefined));
    speakAt(place);
    process.stdout.write(JSON.stringify({expression}));
    """)


@pytest.mark.parametrize(
    ("around", "reader", "spoken"),
    [
        (["de"], ["en-US"], "de"),
        (["", "en"], ["de-DE"], "en"),
        (["de-AT", "en"], ["en"], "de"),
        (["", ""], ["fr", "DE-ch", "en"], "de"),
        (["fr"], ["pt", "en-GB", "de"], "en"),
        (["fr"], ["ja"], "en"),
        (["deu"], [], "en"),
    ],
)
def test_the_nearest_language_counts_then_the_readers(
    around: list[str], reader: list[str], spoken: str
) -> None:
    assert run("language()", around=around, reader=reader) == spoken


def test_texts_have_their_forms_and_values() -> None:
    output = run(
        """[say('films', { count: 1, name: 'A' }), say('films', { count: 12345, name: 2026 }), say('english'),
            say('more', { shown: '1', count: 'viele' }), parts('link', { link: ['node'] }), say('none'),
            term('english', 'other'), term('unknown name', 'as it is'), numberText(0.5),
            dayText('2024-03-09'), dayText('2024')]""",
        around=["de"],
        reader=[],
    )
    assert output == [
        "1 Aufnahme", "12.345 Aufnahmen von 2026", "only here", "1 von viele", ["Siehe ", ["node"], "."],
        "none", "only here", "as it is", "0,5", "09.03.2024", "2024",
    ]  # fmt: skip
    # Days are ISO in English.
    output = run("[dayText('2024-03-09'), numberText(12345.5)]", around=["en"], reader=[])
    assert output == ["2024-03-09", "12,345.5"]


TABLE: Final = PAGE / "shared" / "keys.js"


def _table() -> dict[str, dict[str, list[str]]]:
    """The keys of each action, by where they count."""
    (text,) = re.findall(
        r"export const KEYS = \{\n(.*?)^\};", TABLE.read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    positions = re.findall(r"^  (\w+): \{ (.*) \},$", text, re.MULTILINE)
    assert len(positions) == len(text.splitlines())
    return {
        position: {
            action: re.findall(r"'([^']+)'", keys) for action, keys in re.findall(r"(\w+): \[(.*?)\]", row)
        }
        for position, row in positions
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
    for position, row in _table().items():
        for name in (f"in.{position}", *row):
            assert f"'keys.{name}': '" in words, name


def test_no_script_looks_at_a_letter_beside_the_table() -> None:
    letters = re.compile(r"\bkey\b(?:\.toLowerCase\(\))? === '[^' ]'")
    text = {path.name for path in PAGE.rglob("*.js") if letters.search(path.read_text("utf-8"))}
    assert text == set()

"""The texts of the pages: whole in every language, and nowhere but in their tables."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Final

import pytest

from app.api.pages import SOURCE
from app.http.problem_kinds import KINDS
from tests.app.page.scripts import Literal, Reader, table
from training.reports.vocabulary import FINDINGS

PAGE: Final = Path(__file__).resolve().parents[3] / "app" / "page"
TABLES: Final = PAGE / "words"
ENGLISH: Final = "en"
LANGUAGES: Final = tuple(sorted(folder.name for folder in TABLES.iterdir()))
PAGES: Final = tuple(sorted(path.stem for path in (TABLES / ENGLISH).glob("*.js")))
# Texts of the names that the service has, which are said by scripts of all pages.
TERMS: Final = "terms"
# Read before OHIF, which has its own languages; its names are shown nowhere.
WITHOUT: Final = {PAGE / "viewer" / "ohif-config.js"}
SCRIPTS: Final = tuple(
    path for path in sorted(PAGE.rglob("*.js")) if TABLES not in path.parents and path not in WITHOUT
)
HTML: Final = tuple(sorted(PAGE.rglob("*.html")))

_PLACEHOLDER: Final = re.compile(r"\{(\w+)\}")
_KEY: Final = re.compile(r"([a-zA-Z]+)\.[\w. -]+")
_LETTER: Final = re.compile(r"[^\W\d_]")
_SENTENCE: Final = re.compile(r"^[A-Z][a-z]|[a-z\u2019']{2,},? [A-Za-z]{2,}")
_WORD_BESIDE_VALUE: Final = re.compile(r"(?:^| )[A-Za-z]{2,}(?=[ .,:;!?\u2026]|$)")
_SHOWN_PROPERTIES: Final = frozenset(
    [
        "title",
        "placeholder",
        "alt",
        "aria-label",
        "aria-valuetext",
        "aria-description",
        "textContent",
        "label",
        "text",
        "act",
        "busy",
        "detail",
    ]
)
# Arguments, by function, of which a reader sees each.
_SHOWN_FROM: Final = {"h": 2, "fill": 1, "iconButton": 1, "prompt": 0}
_HIDDEN_PROPERTIES: Final = frozenset(
    ["class", "className", "key", "Authorization", "Accept", "accept", "allow", "transform"]
)
_TECHNICAL: Final = frozenset(
    [
        "querySelector",
        "querySelectorAll",
        "closest",
        "matches",
        "includes",
        "startsWith",
        "get",
        "matchMedia",
        "setAttribute",
        "getAttribute",
    ]
)
# Keys of the keyboard, and names in programs.
_NAMES: Final = {"Enter", "Esc", "ProblemError", "Bearer "}
_PROGRAMS: Final = {"code", "pre", "kbd"}


def table_of(language: str, page: str) -> dict[str, dict[str, str]]:
    """Return the texts of a page in a language, by key and form."""
    return table((TABLES / language / f"{page}.js").read_text(encoding="utf-8"))


def texts_of(page: str) -> dict[str, dict[str, str]]:
    """Return the English texts that the scripts of a page may say."""
    texts = table_of(ENGLISH, page)
    return texts | table_of(ENGLISH, TERMS) if page == "shared" else texts


def placeholders(forms: dict[str, str]) -> set[str]:
    """Return the names of the values in a text."""
    return {name for text in forms.values() for name in _PLACEHOLDER.findall(text)}


def page_of(script: Path) -> str:
    """Return the page of a script; the address for other sites has no texts."""
    return script.relative_to(PAGE).parts[0].removesuffix(".js")


def is_shown(literal: Literal, chunk: str) -> bool:
    """Whether a reader may see a part of a literal."""
    if not _LETTER.search(chunk) or literal.compared or chunk in _NAMES:
        return False
    if literal.name in _HIDDEN_PROPERTIES or (literal.callee == "h" and literal.first in _PROGRAMS):
        return False
    if literal.name in _SHOWN_PROPERTIES or literal.argument >= _SHOWN_FROM.get(literal.callee, 99):
        return True
    if literal.callee in _TECHNICAL and literal.first not in _SHOWN_PROPERTIES:
        return False
    if literal.callee in _TECHNICAL and literal.argument == 1:
        return True
    return bool(
        _SENTENCE.search(chunk)
        or (len(literal.chunks) > 1 and " " in chunk and _WORD_BESIDE_VALUE.search(chunk))
    )


def shown_outside(script: str, known: set[str]) -> Iterator[str]:
    """Give the texts of a script that a reader may see, but keys of tables.

    Args:
        script: Text of the script.
        known: Keys of its page's table.
    """
    for literal in Reader(script).literals:
        if literal.callee in Reader.CALLEES or "".join(literal.chunks) in known:
            continue
        for chunk in literal.chunks:
            if is_shown(literal, chunk):
                yield f"line {literal.line}: {chunk}"


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("page", PAGES)
def test_every_language_has_every_text_with_its_values(page: str, language: str) -> None:
    english, other = table_of(ENGLISH, page), table_of(language, page)
    assert sorted(set(english) - set(other)) == [], "missing"
    assert sorted(set(other) - set(english)) == [], "not in English"
    for key, forms in other.items():
        assert all(text.strip() for text in forms.values()), key
        assert "other" in forms, f"{key} has no form for other counts"
        assert placeholders(forms) - {"count"} == placeholders(english[key]) - {"count"}, key
        if len(english[key]) == 1 and "count" in placeholders(english[key]):
            assert "count" in forms["other"], key


def test_every_language_is_offered_and_no_other() -> None:
    offered = re.search(r"const LANGUAGES = \[(.*)\];", (PAGE / "shared" / "words.js").read_text())
    assert offered
    assert tuple(sorted(re.findall(r"'(\w+)'", offered[1]))) == LANGUAGES
    for script in SCRIPTS:
        for tables in re.findall(r"speaker\(\{(.*)\}\)", script.read_text(encoding="utf-8")):
            assert tuple(sorted(re.findall(r"\w+", tables))) == LANGUAGES, script


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: str(path.relative_to(PAGE)))
def test_scripts_say_texts_of_their_table_with_all_values(script: Path) -> None:
    texts = texts_of(page_of(script)) if page_of(script) in PAGES else {}
    rooms = {key.split(".")[0] for key in texts}
    reader = Reader(script.read_text(encoding="utf-8"))
    for literal in reader.literals:
        text = "".join(literal.chunks)
        found = _KEY.fullmatch(text)
        if len(literal.chunks) == 1 and found and found[1] in rooms:
            assert text in texts, f"line {literal.line}: no text {text}"
    for call in reader.calls:
        for key in call.keys:
            if "\0" in key:
                assert any(one.startswith(key.split("\0")[0]) for one in texts), f"line {call.line}: {key}"
                continue
            assert key in texts, f"line {call.line}: no text {key}"
            if call.values is not None and call.callee != "term":
                wanted = placeholders(texts[key])
                assert wanted <= call.values, f"line {call.line}: {key} lacks {wanted - call.values}"


@pytest.mark.parametrize("page", PAGES)
def test_every_text_is_said_somewhere(page: str) -> None:
    rooms = {TERMS: "shared"}
    scripts = [script for script in SCRIPTS if page_of(script) == rooms.get(page, page)]
    readers = [Reader(script.read_text(encoding="utf-8")) for script in scripts]
    said = {"".join(literal.chunks) for reader in readers for literal in reader.literals}
    begun = tuple(
        key.split("\0")[0] for reader in readers for call in reader.calls for key in call.keys if "\0" in key
    )
    if page == "shared":
        for path in HTML:
            said |= set(re.findall(r'data-say(?:-label)?="([^"]+)"', path.read_text(encoding="utf-8")))
    assert [key for key in table_of(ENGLISH, page) if key not in said and not key.startswith(begun)] == []


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: str(path.relative_to(PAGE)))
def test_scripts_have_no_texts_of_their_own(script: Path) -> None:
    known = set(texts_of(page_of(script))) if page_of(script) in PAGES else set()
    assert list(shown_outside(script.read_text(encoding="utf-8"), known)) == []


@pytest.mark.parametrize(
    "planted",
    [
        "h('p', {}, 'none')",
        "h('p', { class: 'quiet' }, ready ? say('a.b') : 'not yet')",
        "h('span', {}, `${count} more`)",
        "h('button', { title: 'close' }, icon('close'))",
        "h('button', { 'aria-label': `open ${id}` })",
        "h('input', { placeholder: wide ? 'search' : '' })",
        "iconButton('close', 'close', act)",
        "this.button.textContent = 'again';",
        "button.title = open ? 'less' : 'more';",
        "element.setAttribute('aria-label', 'results')",
        "const NAMES = { queued: 'waits for a worker' };",
        "return `from ${low}`;",
        "return 'Done';",
        "throw new ProblemError({ title: 'failed', detail })",
        "window.prompt('link:', link)",
        "fill(said, h('b', {}), 'gone')",
        "const text = `${count} ${count === 1 ? 'image found' : many}`;",
    ],
)
def test_a_text_in_a_script_is_found(planted: str) -> None:
    script = f"/** A script. */\nimport {{ h }} from './dom.js';\n{planted}\n"
    assert len(list(shown_outside(script, set()))) >= 1


def test_names_in_programs_are_no_texts() -> None:
    script = """
    const PATTERN = /It's a "pattern" \\/ with [/'] quotes/g;
    h('button', { class: `button primary ${side}`, data: { key: `finding ${name}` } }, icon('close'));
    act('replace');
    if (event.key === 'ArrowLeft' || event.key.startsWith('Arrow')) element.setAttribute('role', 'status');
    const ratio = width / height / 2;
    h('p', {}, ...parts('a.b', { command: h('code', {}, 'recoquest run') }), `${x}: `, say(`c.${job.state}`));
    switch (key) { case 'Home': return 0; }
    """
    assert list(shown_outside(script, set())) == []


def test_calls_are_read_with_their_values() -> None:
    script = (
        "say(open ? 'a.b' : 'c.d', { count, name: x.name, ...more }); say('e.f', { id, 'of': 1 }); say('g');"
    )
    calls = [(call.keys, call.values) for call in Reader(script).calls]
    assert calls == [(["a.b", "c.d"], None), (["e.f"], {"id", "of"}), (["g"], set())]


class _Texts(HTMLParser):
    """Texts and labels of a page, each with the key beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str | None]] = []
        self._open: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if attributes.get("aria-label"):
            self.found.append((str(attributes["aria-label"]), attributes.get("data-say-label")))
        if tag not in {"meta", "link", "img", "input"}:
            self._open.append((tag, attributes))

    def handle_endtag(self, tag: str) -> None:
        while self._open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        # Shown where no script runs, so that nobody can choose another language.
        if _LETTER.search(data) and all(tag != "noscript" for tag, _ in self._open):
            self.found.append((data, self._open[-1][1].get("data-say")))


@pytest.mark.parametrize("path", HTML, ids=lambda path: path.name)
def test_texts_of_html_name_their_key(path: Path) -> None:
    texts = table_of(ENGLISH, "shared")
    reader = _Texts()
    reader.feed(path.read_text(encoding="utf-8"))
    assert reader.found
    for text, key in reader.found:
        if text != "recoquest":
            assert key is not None, f"{text} names no text"
            assert texts[key] == {"other": text}


def test_styles_have_no_texts() -> None:
    for path in sorted(PAGE.rglob("*.css")):
        contents = re.findall(r"""content:\s*(["'])(.*?)\1""", path.read_text(encoding="utf-8"))
        assert [text for _, text in contents if _LETTER.search(text)] == [], path


def test_terms_are_those_of_the_service() -> None:
    terms = {key: forms["other"] for key, forms in table_of(ENGLISH, TERMS).items()}
    assert {name for name in terms if name.startswith("finding.")} == {f"finding.{name}" for name in FINDINGS}
    for key, text in terms.items():
        kind, _, name = key.partition(".")
        if kind in {"finding", "field", "state", "kind"}:
            assert text == name.replace("_", " ")


def test_titles_of_problems_are_those_of_the_service() -> None:
    titles = {
        key.removeprefix("problem."): forms["other"]
        for key, forms in table_of(ENGLISH, "shared").items()
        if key.startswith("problem.")
    }
    assert {titles.get(kind.slug, kind.title) == kind.title for kind in KINDS.values()} == {True}
    described = re.findall(r"^## (\S+)$", SOURCE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(set(titles) - set(described)) == []

"""The texts of the pages: whole in every language, and nowhere but in their tables.

Walks over the German pages in tests/browser find the texts that scripts put together.
"""

import ast
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Final

import pytest

from app.edge.problems import KINDS
from app.jobs import kinds as jobs
from app.page_routes import SOURCE
from training.clinical.findings.vocabulary import FINDINGS

PAGE: Final = Path(__file__).resolve().parents[3] / "app" / "page"
TABLES: Final = PAGE / "words"
ENGLISH: Final = "en"
LANGUAGES: Final = tuple(sorted(path.stem for path in TABLES.iterdir()))
_SECTION: Final = re.compile(r"^  (\w+): \{\n(.*?)^  \},$", re.MULTILINE | re.DOTALL)
PAGES: Final = tuple(
    name for name, _ in _SECTION.findall((TABLES / f"{ENGLISH}.js").read_text(encoding="utf-8"))
)
# Texts of the names that the service has, which are said by scripts of all pages.
TERMS: Final = "terms"
# Read before OHIF, which has its own languages; its names are shown nowhere.
WITHOUT: Final = {PAGE / "viewer" / "ohif-config.js"}
SCRIPTS: Final = tuple(
    path for path in sorted(PAGE.rglob("*.js")) if TABLES not in path.parents and path not in WITHOUT
)
HTML: Final = tuple(sorted(PAGE.rglob("*.html")))

_PLACEHOLDER: Final = re.compile(r"\{(\w+)\}")
_LETTER: Final = re.compile(r"[^\W\d_]")
_COMMENT: Final = re.compile(r"^\s*(?://|/?\*).*$", re.MULTILINE)
_STRING: Final = r"""(?:'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")"""
_ENTRY: Final = re.compile(
    rf"""^\s*({_STRING}|\w+):\s*(?:({_STRING})|\{{((?:[^'"{{}}]|{_STRING})*)\}})""", re.MULTILINE
)
_FORM: Final = re.compile(rf"(\w+):\s*({_STRING})")
_VALUE: Final = r"\$\{(?:[^{}`]|\{[^{}`]*\}|`[^`]*`)*\}"
_LITERAL: Final = re.compile(rf"{_STRING}|`(?:[^`$]|{_VALUE}|\$)*`")
_CALL: Final = re.compile(r"(?<![#.\w])(?:say|parts)\(\s*'([\w.]+)'(?:,\s*\{([^{}()]*)\})?\s*\)")
# Readers see what follows these, be it a single word.
_SHOWN: Final = re.compile(
    r"(?:\b(?:title|placeholder|alt|textContent)\b|'aria-(?:label|valuetext|description)'|\bprompt\()"
    r"\s*[:=,]?\s*(?:[\w.]+ \? (?:'[^']*' : )?)?$"
)
# Programs read what is behind these.
_HIDDEN: Final = re.compile(
    r"(?:\b(?:class|className|key|Accept|accept|allow|transform)\s*[:=][^,;{}]*|\bfrom|\bimport|[=!]==|\bcase|"
    r"\b(?:querySelector|querySelectorAll|closest|matches|includes|startsWith|matchMedia)\(|"
    r"\bh\('(?:code|pre|kbd)', \{[^{}]*\},)\s*$"
)
_SENTENCE: Final = re.compile(
    r"^[A-Z][a-z]+(?:[ .,:;!?\u2026]|$)|[a-z\u2019']{2,},? [A-Za-z]{2,}|\0 [a-z]{2,}|[a-z]{2,} \0"
)
# Keys of the keyboard, and names in programs.
_NAMES: Final = {"Enter", "Esc", "ProblemError", "Bearer \0", "aria-label"}


def table_of(language: str, page: str) -> dict[str, dict[str, str]]:
    """Return the texts of a page in a language, by key and form; one without forms has `other` alone."""
    found: dict[str, dict[str, str]] = {}
    sections = dict(_SECTION.findall((TABLES / f"{language}.js").read_text(encoding="utf-8")))
    for key, text, forms in _ENTRY.findall(sections[page]):
        name = key.strip("'\"")
        assert name not in found, f"{name} twice"
        given = {"other": text} if text else dict(_FORM.findall(forms))
        found[name] = {form: ast.literal_eval(one) for form, one in given.items()}
    assert len(found) == len(re.findall(r"^    (?:'[^']+'|\w+):", sections[page], re.MULTILINE)), (
        "entries that were not read"
    )
    return found


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


def code_of(script: Path) -> str:
    """Return a script without its comments."""
    return _COMMENT.sub("", script.read_text(encoding="utf-8"))


def literals(code: str) -> Iterator[tuple[str, str]]:
    """Give the texts of a script, each with what is before it; NUL stands for a value in a text."""
    for found in _LITERAL.finditer(code):
        text = re.sub(r"\\u(\w{4})", lambda code: chr(int(code[1], 16)), found[0][1:-1])
        yield code[: found.start()][-80:], re.sub(_VALUE, "\0", text)
        if found[0][0] == "`":
            for value in re.findall(_VALUE, found[0]):
                yield from literals(value[2:-1])


def shown_outside(code: str, known: set[str]) -> Iterator[str]:
    """Give the texts of a script that a reader may see, but keys of tables.

    Args:
        code: The script.
        known: Keys of its page's table.
    """
    for before, text in literals(code):
        if not _LETTER.search(text) or text in known or text in _NAMES or _HIDDEN.search(before):
            continue
        if _SHOWN.search(before) or _SENTENCE.search(text):
            yield text


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
    offered = re.search(r"const TEXTS = \{(.*)\};", (PAGE / "shared" / "words.js").read_text())
    assert offered
    assert tuple(sorted(re.findall(r"\w+", offered[1]))) == LANGUAGES
    for script in SCRIPTS:
        for page in re.findall(r"speaker\('(\w+)'\)", script.read_text(encoding="utf-8")):
            assert page in {page_of(script), TERMS}, script


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: str(path.relative_to(PAGE)))
def test_scripts_say_texts_of_their_table_with_all_values(script: Path) -> None:
    texts = texts_of(page_of(script)) if page_of(script) in PAGES else {}
    code = code_of(script)
    for key, values in _CALL.findall(code):
        assert key in texts, f"no text {key}"
        if "..." not in values:
            given = set(re.findall(r"(?:^|,)\s*'?(\w+)", values))
            assert placeholders(texts[key]) <= given, key
    rooms = {key.split(".")[0] for key in texts if "." in key}
    for _, key in literals(code):
        if "." in key and key.partition(".")[0] in rooms:
            begun = key.partition("\0")[0]
            assert any(text == key or (begun != key and text.startswith(begun)) for text in texts), key


@pytest.mark.parametrize("page", PAGES)
def test_every_text_is_said_somewhere(page: str) -> None:
    rooms = {TERMS: "shared"}
    code = "".join(code_of(script) for script in SCRIPTS if page_of(script) == rooms.get(page, page))
    said = {text for _, text in literals(code)}
    begun = tuple(text.partition("\0")[0] for text in said if re.match(r"\w+\.[\w.]*\0", text))
    if page == "shared":
        for path in HTML:
            said |= set(re.findall(r'data-say(?:-label)?="([^"]+)"', path.read_text(encoding="utf-8")))
    assert [key for key in table_of(ENGLISH, page) if key not in said and not key.startswith(begun)] == []


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: str(path.relative_to(PAGE)))
def test_scripts_have_no_texts_of_their_own(script: Path) -> None:
    known = set(texts_of(page_of(script))) if page_of(script) in PAGES else set()
    assert list(shown_outside(code_of(script), known)) == []


@pytest.mark.parametrize(
    "planted",
    [
        "h('p', { class: 'quiet' }, ready ? say('a.b') : 'not yet')",
        "h('span', {}, `${count} more`)",
        "h('button', { title: 'close' }, icon('close'))",
        "h('button', { 'aria-label': `open ${id}` })",
        "h('input', { placeholder: wide ? 'search' : '' })",
        "this.button.textContent = 'again';",
        "button.title = open ? 'less' : 'more';",
        "element.setAttribute('aria-label', 'results')",
        "const NAMES = { queued: 'waits for a worker' };",
        "return 'Done';",
        "window.prompt('link:', link)",
        "const text = `${count} ${count === 1 ? 'image found' : many}`;",
    ],
)
def test_a_text_in_a_script_is_found(planted: str) -> None:
    assert list(shown_outside(planted, set())) != []


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
    operate = table_of(ENGLISH, "operate")
    assert {key.removeprefix("kind.") for key in operate if key.startswith("kind.")} == {*jobs.KINDS}


def test_titles_of_problems_are_those_of_the_service() -> None:
    titles = {
        key.removeprefix("problem."): forms["other"]
        for key, forms in table_of(ENGLISH, "shared").items()
        if key.startswith("problem.")
    }
    assert {titles.get(kind.slug, kind.title) == kind.title for kind in KINDS.values()} == {True}
    described = re.findall(r"^## (\S+)$", SOURCE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(set(titles) - set(described)) == []

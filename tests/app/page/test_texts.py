"""The texts of the pages: whole in every language, and nowhere but in their tables.

Walks over the German pages in tests/browser find the texts that scripts put together.
"""

import json
import re
import shutil
import subprocess
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Final, get_args

import pytest

from app.edge.problems import KINDS
from app.jobs import kinds as jobs
from app.page_routes import SOURCE
from index.search.request import Sort
from tests.needed import needed
from training.clinical.text.vocabulary import FINDINGS

PAGE: Final = Path(__file__).resolve().parents[3] / "app" / "page"
TABLES: Final = PAGE / "words"
ENGLISH: Final = "en"
LANGUAGES: Final = tuple(sorted(path.stem for path in TABLES.iterdir()))
PAGES: Final = tuple(
    re.findall(r"^  (\w+): \{$", (TABLES / f"{ENGLISH}.js").read_text("utf-8"), re.MULTILINE)
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
_CALL: Final = re.compile(r"(?<![#.\w])(?:say|parts)\(\s*'([\w.]+)'(?:,\s*\{([^{}()]*)\})?\s*\)")


def evaluated(script: str) -> Any:
    """What a script writes as JSON."""
    node = needed(shutil.which("node"), "Node.js", "`apt-get install nodejs`")
    ran = subprocess.run(
        [node, "--input-type=module", "-"], input=script, capture_output=True, text=True, timeout=30
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@cache
def tables(language: str) -> dict[str, dict[str, dict[str, str]]]:
    """The texts in a language, by page, key and form; one without forms has `other` alone."""
    source = (TABLES / f"{language}.js").read_text("utf-8")
    pages = evaluated(f"{source}\nprocess.stdout.write(JSON.stringify({language}));")
    keys = re.findall(r"^    (?:'[^']+'|\w+):", source, re.MULTILINE)
    assert len(keys) == sum(map(len, pages.values())), "a key twice"
    return {
        page: {key: text if isinstance(text, dict) else {"other": text} for key, text in texts.items()}
        for page, texts in pages.items()
    }


def texts_of(page: str) -> dict[str, dict[str, str]]:
    """The English texts that the scripts of a page may say."""
    texts = tables(ENGLISH).get(page, {})
    return texts | tables(ENGLISH)[TERMS] if page == "shared" else texts


def placeholders(forms: dict[str, str]) -> set[str]:
    """The names of the values in a text."""
    return {name for text in forms.values() for name in _PLACEHOLDER.findall(text)}


def page_of(script: Path) -> str:
    """The page of a script; the address for other sites has no texts."""
    return script.relative_to(PAGE).parts[0].removesuffix(".js")


def code_of(script: Path) -> str:
    """A script without its comments."""
    return _COMMENT.sub("", script.read_text(encoding="utf-8"))


def named(code: str) -> tuple[set[str], tuple[str, ...]]:
    """What may be keys in a script: whole ones, and how those begin whose end is a value."""
    return set(re.findall(r"'([\w.]+)'", code)), tuple(re.findall(r"`(\w+\.[\w.]*)\$\{", code))


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("page", PAGES)
def test_every_language_has_every_text_with_its_values(page: str, language: str) -> None:
    english, other = tables(ENGLISH)[page], tables(language)[page]
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
    texts, code = texts_of(page_of(script)), code_of(script)
    for key, values in _CALL.findall(code):
        assert key in texts, f"no text {key}"
        if "..." not in values:
            given = set(re.findall(r"(?:^|,)\s*'?(\w+)", values))
            assert placeholders(texts[key]) <= given, key
    rooms = {key.split(".")[0] for key in texts if "." in key}
    keys, begun = named(code)
    for key in (*keys, *begun):
        if "." in key and key.partition(".")[0] in rooms:
            assert key in texts or (key in begun and any(text.startswith(key) for text in texts)), key


@pytest.mark.parametrize("page", PAGES)
def test_every_text_is_said_somewhere(page: str) -> None:
    rooms = {TERMS: "shared"}
    code = "".join(code_of(script) for script in SCRIPTS if page_of(script) == rooms.get(page, page))
    message, begun = named(code)
    if page == "shared":
        for path in HTML:
            message |= set(re.findall(r'data-say(?:-label)?="([^"]+)"', path.read_text(encoding="utf-8")))
    assert [key for key in tables(ENGLISH)[page] if key not in message and not key.startswith(begun)] == []


class _Texts(HTMLParser):
    """Texts and labels of a page, each with its key."""

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
    texts = tables(ENGLISH)["shared"]
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
    terms = {key: forms["other"] for key, forms in tables(ENGLISH)[TERMS].items()}
    assert {name for name in terms if name.startswith("finding.")} == {f"finding.{name}" for name in FINDINGS}
    for key, text in terms.items():
        kind, _, name = key.partition(".")
        if kind in {"finding", "field", "state", "kind"}:
            assert text == name.replace("_", " ")
    operate = tables(ENGLISH)["operate"]
    assert {key.removeprefix("kind.") for key in operate if key.startswith("kind.")} == {*jobs.KINDS}


def test_orders_of_the_page_are_those_of_the_service() -> None:
    source = (PAGE / "search" / "query" / "query.js").read_text("utf-8")
    alone = re.sub(r"^import .*$", "", source, flags=re.MULTILINE)
    orders = evaluated(f"{alone}\nprocess.stdout.write(JSON.stringify(SORTS));")
    assert orders == [*get_args(Sort)]
    texts = {key for key in tables(ENGLISH)["search"] if key.startswith("row.sort.")}
    assert texts - {"row.sort.none"} == {f"row.sort.{order}" for order in orders}


def test_titles_of_problems_are_those_of_the_service() -> None:
    titles = {
        key.removeprefix("problem."): forms["other"]
        for key, forms in tables(ENGLISH)["shared"].items()
        if key.startswith("problem.")
    }
    assert {titles.get(kind.slug, kind.title) == kind.title for kind in KINDS.values()} == {True}
    described = re.findall(r"^## (\S+)$", SOURCE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(set(titles) - set(described)) == []

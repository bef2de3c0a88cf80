"""The pages in German, by the browser's language or the page's around."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.conftest import OpenSearch, Sites, Watch
from tests.browser.german import GERMAN, strangers
from tests.browser.operating import OperatorPage, operated, prepared, sign_in
from tests.browser.search_page import SearchPage, expect
from tests.browser.service import OTHER, SHAPES
from tests.browser.test_accessibility import DESK, serious

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser

_METRIC = ("image", "recall", "at")
PANEL = {"viewport": {"width": 420, "height": 900}}
_HOST = """<!doctype html><html{language}><meta charset="utf-8"><title>host</title>
<link rel="icon" href="data:,">
<script type="module" src="{service}/page/image-search.js"></script>
<main {around}><image-search src="{service}" collection="shapes" {attributes}></image-search></main>"""

_EMPTY = (
    '<!doctype html><html lang="en"><title>made</title><link rel="icon" href="data:,"><body></body></html>'
)


def _is_german(search: SearchPage, *names: str) -> None:
    assert strangers(search.page, names) == []
    assert not search.scrolls_sideways()


def _open_first(search: SearchPage) -> None:
    search.tiles.first.locator(".hit-open").click()
    expect(search.dialog.locator(".details")).to_contain_text("Pixel")


@pytest.mark.slow
@pytest.mark.parametrize("window", [DESK, PANEL])
def test_the_search_is_german_from_the_landing_to_an_open_image(
    open_search: OpenSearch, window: dict[str, Any]
) -> None:
    search = open_search("#words=off", reduced_motion="reduce", bypass_csp=True, **window, **GERMAN)
    expect(search.page.locator(".landing")).to_contain_text("in 60 Bildern suchen")
    expect(search.page.locator("html")).to_have_attribute("lang", "de")
    expect(search.answer).to_contain_text("24 von 60 Bildern")
    _is_german(search)
    search.search("a red circle")
    expect(search.answer).to_contain_text("Die besten 24 Bilder")
    _is_german(search)
    assert serious(search) == []
    _open_first(search)
    expect(search.dialog.locator(".dialog-score")).to_contain_text("nach Ähnlichkeit und genauen Wörtern")
    search.page.keyboard.press("b")
    _is_german(search)


@pytest.mark.slow
@pytest.mark.parametrize("window", [DESK, PANEL])
def test_filters_words_examples_and_keys_are_german(open_search: OpenSearch, window: dict[str, Any]) -> None:
    search = open_search(
        "#q=purple+triangle&words=exact&like=shape-7&unlike=shape-8&box=.1,.1,.5,.5+shape-7",
        **window,
        **GERMAN,
    )
    search.settle()
    expect(search.page.locator(".tag.words").first).to_have_text("genaue Wörter")
    expect(search.page.get_by_role("group", name="Mehr wie").locator(".chip")).to_have_count(1)
    _is_german(search)
    search.page.get_by_role("button", name="Filter", exact=True).click()
    search.group("labels").get_by_label("square").check()
    search.group("finding").get_by_label("Pleuraerguss").select_option("absent")
    expect(search.chips.filter(has_text="Pleuraerguss: verneint")).to_have_count(1)
    expect(search.notice).to_contain_text("Kein Bild entspricht den Filtern")
    _is_german(search)
    search.page.get_by_role("button", name="Filter schließen").click()
    search.page.locator(".shell").press("?")
    expect(search.page.get_by_role("dialog", name="Tastenkürzel")).to_be_visible()
    assert strangers(search.page, (*"befghiklmnorsuwyzc", "esc", "f6")) == []


@pytest.mark.slow
def test_what_is_said_of_a_search_is_german(open_search: OpenSearch, watch: Watch) -> None:
    watch.allow("404")
    search = open_search("#q=giraffe+elk+circle&words=exact", **DESK, **GERMAN)
    search.settle()
    expect(search.page.locator(".strip")).to_have_text(
        "Kein Text enthält hier die Wörter „giraffe“ und „elk“."
    )
    _is_german(search, "elk")
    for address, said in {
        "#q=giraffe&words=only": "Kein Bild hat diese Wörter",
        "#by=image": "Das Bild dieser Suche ist nicht mehr hier",
        "#q=circle&filter=broken&group=": "der Filter und das Feld der Gruppierung im Link können nicht",
        "#q=circle&collection=none": "Diese Sammlung gibt es nicht",
    }.items():
        search = open_search(address, **DESK, **GERMAN)
        expect(search.notice).to_contain_text(said)
        _is_german(search, "none")
    # The service's own words stay as they are, and say so.
    expect(search.notice.locator("[lang=en]")).to_contain_text("none")


@pytest.mark.slow
def test_a_film_has_german_controls(open_search: OpenSearch, films: str, watch: Watch) -> None:
    watch.allow(films)
    search = open_search("#q=film&image=film.tif", site=films, **DESK, **GERMAN)
    search.dialog.get_by_role("button", name="Fensterung").click()
    search.dialog.get_by_role("button", name="Alle Werte").click()
    centre = search.dialog.get_by_role("slider", name="Fenstermitte")
    assert re.fullmatch(r"\d{2}\.\d{3}", centre.get_attribute("aria-valuetext") or "")
    _is_german(search, "films", "film", "tif", "png")


@pytest.mark.slow
def test_saved_cases_are_german(open_search: OpenSearch, sites: Sites) -> None:
    search = open_search("#q=circle", **DESK, **GERMAN)
    search.settle()
    search.tiles.first.get_by_role("button", name="Treffer 1 als Fall speichern").click()
    dialog = search.page.locator("dialog.save-case")
    dialog.get_by_label("Name der Liste").fill("circle")
    dialog.get_by_label("Notiz").fill("red")
    _is_german(search)
    dialog.get_by_role("button", name="Fall speichern").click()
    expect(search.page.locator(".kept")).to_contain_text("ist in „circle“ gespeichert")
    room = open_search("room", **DESK, **GERMAN)
    room.settle()
    room.page.get_by_role("button", name="Gespeicherte Fälle").click()
    book = room.page.locator("case-book")
    expect(book.get_by_label("Liste", exact=True)).to_contain_text("circle (1)")
    expect(book.locator(".entry")).to_have_count(1)
    _is_german(room)
    book.get_by_role("button", name="Liste umbenennen").click()
    _is_german(room)
    room.page.keyboard.press("Escape")
    book.get_by_role("button", name=re.compile("^Notiz zu .* ändern$")).click()
    _is_german(room)
    room.page.keyboard.press("Escape")
    for one in search.ask(f"v1/collections/{SHAPES}/cases")["lists"]:
        search.page.request.delete(f"{sites.service}/v1/collections/{SHAPES}/cases/{one['id']}")


@pytest.mark.parametrize(
    ("language", "around", "attributes", "reader", "spoken"),
    [
        (' lang="en"', "", 'lang="de"', "en-US", "de"),
        (' lang="en"', "", "", "de-DE", "en"),
        pytest.param("", "", "", "de-AT", "de", marks=pytest.mark.slow),
        pytest.param(' lang="en"', 'lang="de-CH"', "", "en-US", "de", marks=pytest.mark.slow),
        pytest.param(' lang="fr"', "", "", "de-DE", "de", marks=pytest.mark.slow),
        pytest.param(' lang="fr"', "", "", "fr-FR", "en", marks=pytest.mark.slow),
    ],
)
def test_the_element_speaks_the_language_of_its_place(
    open_search: OpenSearch, sites: Sites, watch: Watch,
    language: str, around: str, attributes: str, reader: str, spoken: str,
) -> None:  # fmt: skip
    content = _HOST.format(service=sites.service, language=language, around=around, attributes=attributes)
    (sites.host_folder / "language.html").write_text(content)
    watch.allow(sites.host)
    search = open_search("language.html", site=sites.host, locale=reader)
    go = {"de": "Suchen", "en": "Search"}[spoken]
    expect(search.page.get_by_role("button", name=go, exact=True)).to_be_visible()
    expect(search.page.locator(".shell")).to_have_attribute("lang", spoken)
    if spoken == "de":
        assert strangers(search.page, ("host",)) == []


def test_an_element_made_by_a_script_has_its_language_when_it_comes_into_the_page(
    open_search: OpenSearch, sites: Sites, watch: Watch
) -> None:
    (sites.host_folder / "made.html").write_text(_EMPTY)
    watch.allow(sites.host)
    search = open_search("made.html", site=sites.host)
    search.page.evaluate(
        """async (service) => {
          await import(`${service}/page/image-search.js`);
          const search = document.createElement('image-search');
          search.setAttribute('src', service);
          search.setAttribute('lang', 'de');
          document.body.append(search);
        }""",
        sites.service,
    )
    expect(search.page.get_by_role("button", name="Suchen", exact=True)).to_be_visible()


@pytest.mark.slow
@pytest.mark.parametrize("window", [DESK, PANEL])
def test_the_operators_page_is_german(chromium: "Browser", tmp_path: Path, window: dict[str, Any]) -> None:
    ready = prepared(tmp_path / "retrained")
    with operated(ready, tmp_path) as site:
        context = chromium.new_context(**window, **GERMAN)
        page = context.new_page()
        page.set_default_timeout(10_000)
        page.goto(f"{site.service}/operate")
        expect(page.get_by_role("heading", name="Anmelden")).to_be_visible()
        assert page.title() == "Betrieb \u00b7 recoquest"
        assert strangers(page, _METRIC) == []
        sign_in(context, site.service)
        page.reload()
        shown = OperatorPage(page)
        expect(shown.job(site.job)).to_contain_text("wartet auf Sie")
        expect(shown.job(site.job)).to_contain_text("rsum 271,4 \u2192 280,3 mit 15 zurückgehaltenen Bildern")
        page.get_by_text("Steckbrief").first.click()
        expect(page.locator(".facts.metrics").first).to_be_visible()
        expect(shown.press(f"Das Modell von Auftrag {site.job} übernehmen")).to_contain_text("Generation 3")
        data = ", ".join(f"dt:text-is('{name}') + dd" for name in ("Rezept", "Teilnetze", "Zielfunktion"))
        shown_data = page.locator(f"{data}, .metrics dt, .figures, .row-main code, .row-head strong")
        names = re.findall(r"[^\W\d_]+", " ".join(shown_data.all_inner_texts()))
        assert strangers(page, (*names, *_METRIC, "worker", "admin", "key", SHAPES, OTHER)) == []
        wider = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
        assert not page.evaluate(wider)
        context.close()


def test_the_page_for_reading_is_german(chromium: "Browser", sites: Sites) -> None:
    context = chromium.new_context(**DESK, **GERMAN)
    page = context.new_page()
    page.set_default_timeout(10_000)
    page.goto(f"{sites.service}/reading")
    expect(page.get_by_role("heading", name="Anmelden")).to_be_visible()
    assert page.title() == "Befundung \u00b7 recoquest"
    assert strangers(page) == []
    context.close()

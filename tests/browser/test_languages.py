"""The pages in German, by the browser's language."""

import re
from typing import Any

import pytest

from tests.browser.conftest import DESK, OpenSearch, Watch, step
from tests.browser.german import GERMAN, strangers
from tests.browser.search_page import SearchPage, expect, serious

pytestmark = pytest.mark.browser

_METRIC = ("image", "recall", "at")
_NARROW = {"viewport": {"width": 420, "height": 900}}


def _is_german(search: SearchPage, *names: str) -> None:
    assert strangers(search.page, names) == []
    assert not search.scrolls_sideways()


@pytest.mark.slow
@pytest.mark.parametrize("window", [DESK, _NARROW])
def test_the_search_is_german(
    open_search: OpenSearch, films: str, watch: Watch, window: dict[str, Any]
) -> None:
    search = open_search("#words=off", reduced_motion="reduce", bypass_csp=True, **window, **GERMAN)
    expect(search.page.locator(".landing")).to_contain_text("in 60 Bildern suchen")
    expect(search.page.locator("html")).to_have_attribute("lang", "de")
    expect(search.answer).to_contain_text("24 von 60 Bildern")
    _is_german(search)
    search.search("a red circle")
    expect(search.answer).to_contain_text("Die besten 24 Bilder")
    _is_german(search)
    assert serious(search.page) == []
    step("an open image, of which a part is marked")
    search.open_hit(pixels="Pixel")
    score = search.dialog.locator(".dialog-score")
    expect(score).to_contain_text("nach Ähnlichkeit und genauen Wörtern")
    search.page.keyboard.press("b")
    _is_german(search)
    search.go("#q=purple+triangle&words=exact&like=shape-7&unlike=shape-8&box=.1,.1,.5,.5+shape-7")
    expect(search.page.locator(".tag.words").first).to_have_text("genaue Wörter")
    expect(search.page.get_by_role("group", name="Mehr wie").locator(".chip")).to_have_count(1)
    _is_german(search)
    step("filters that leave nothing")
    search.button("Filter").click()
    search.group("labels").get_by_label("square").check()
    search.group("finding").get_by_label("Pleuraerguss").select_option("absent")
    expect(search.chips.filter(has_text="Pleuraerguss: verneint")).to_have_count(1)
    expect(search.notice).to_contain_text("Kein Bild entspricht den Filtern")
    _is_german(search)
    search.button("Filter schließen").click()
    search.page.locator(".shell").press("?")
    expect(search.page.get_by_role("dialog", name="Tastenkürzel")).to_be_visible()
    assert strangers(search.page, (*"befghiklmnorsuwyzc", "esc", "f6")) == []
    watch.allow(films)
    search.page.goto(f"{films}/#q=film&image=film.tif")
    search.dialog.get_by_role("button", name="Fensterung").click()
    search.dialog.get_by_role("button", name="Alle Werte").click()
    centre = search.dialog.get_by_role("slider", name="Fenstermitte")
    assert re.fullmatch(r"\d{2}\.\d{3}", centre.get_attribute("aria-valuetext") or "")
    _is_german(search, "films", "film", "tif", "png")


@pytest.mark.slow
def test_what_is_said_of_a_search_and_of_cases_is_german(
    open_search: OpenSearch, watch: Watch, no_cases: None
) -> None:
    watch.allow("404")
    search = open_search("#q=giraffe+elk+circle&words=exact", **DESK, **GERMAN).settle()
    step("words that no text has")
    reported = "Kein Text enthält hier die Wörter „giraffe“ und „elk“."
    expect(search.page.locator(".strip")).to_have_text(reported)
    _is_german(search, "elk")
    for address, message in {
        "#q=giraffe&words=only": "Kein Bild hat diese Wörter",
        "#by=image": "Das Bild dieser Suche ist nicht mehr hier",
        "#q=circle&filter=broken&group=": "der Filter und das Feld der Gruppierung im Link können nicht",
        "#q=circle&collection=none": "Diese Sammlung gibt es nicht",
    }.items():
        step(address)
        search.page.goto(f"{search.service}/{address}")
        expect(search.notice).to_contain_text(message)
        _is_german(search, "none")
    # The service's own words stay as they are, and say so.
    expect(search.notice.locator("[lang=en]")).to_contain_text("none")
    search.go("#q=circle&collection=shapes")
    search.tiles.first.get_by_role("button", name="Treffer 1 als Fall speichern").click()
    dialog = search.page.locator("dialog.save-case")
    dialog.get_by_label("Name der Liste").fill("circle")
    dialog.get_by_label("Notiz").fill("red")
    _is_german(search)
    dialog.get_by_role("button", name="Fall speichern").click()
    expect(search.page.locator(".kept")).to_contain_text("ist in „circle“ gespeichert")
    search.go("room")
    search.button("Gespeicherte Fälle").click()
    book = search.page.locator("case-book")
    expect(book.get_by_label("Liste", exact=True)).to_contain_text("circle (1)")
    expect(book.locator(".entry")).to_have_count(1)
    _is_german(search)
    for name in ("Liste umbenennen", re.compile("^Notiz zu .* ändern$")):
        step(f"the dialog of {name}")
        book.get_by_role("button", name=name).click()
        _is_german(search)
        search.page.keyboard.press("Escape")
    search.button("Filter").click()
    search.group("finding").get_by_label("Rundherd").select_option("present")
    expect(search.tiles).to_have_count(1)
    search.tiles.first.get_by_role("button", name="Befund und Angaben").press("Enter")
    expect(search.dialog.locator(".finding").first).to_have_text("Rundherd: vorhanden frühere Untersuchung")

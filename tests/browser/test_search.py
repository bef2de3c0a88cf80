"""Searching by text and by image, and what the page tells of the answer."""

import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.conftest import OpenSearch, Sites, Watch
from tests.browser.search_page import PAGE_SIZE, expect
from tests.browser.service import MARKUP
from tests.dicom_films import encoded, make_film

if TYPE_CHECKING:
    from playwright.sync_api import Route

pytestmark = pytest.mark.browser


def test_text_search_shows_the_hits_of_the_service_in_rank_order(open_search: OpenSearch) -> None:
    search = open_search()
    search.search("a red circle")
    assert search.ids() == search.found_by_text("a red circle")
    assert search.ranks() == list(range(1, PAGE_SIZE + 1))
    assert search.scores() == sorted(search.scores(), reverse=True)


def test_tiles_show_text_and_labels(open_search: OpenSearch) -> None:
    search = open_search("#q=shape")
    search.settle()
    tile = search.page.locator('.hit:not([data-id="shape-5"], [data-id="shape #4?"])').first
    record = search.ask(f"v1/collections/shapes/images/{tile.get_attribute('data-id')}")
    expect(tile.locator(".hit-text")).to_have_text(record["texts"][0])
    expect(tile.locator(".tag")).to_have_text(record["labels"])
    expect(tile.locator("img")).to_have_js_property("complete", True)
    assert tile.locator("img").evaluate("image => image.naturalWidth") > 0


def test_scores_are_cosines_and_never_percentages(open_search: OpenSearch) -> None:
    search = open_search("#q=blue+square&words=off")
    search.settle()
    first = search.ask("v1/collections/shapes/search", {"text": "blue square"})["hits"][0]
    shown = search.page.locator(".hit-score").first.inner_text()
    assert shown == f"{first['score']:.3f} cosine".replace("-", "\u2212")
    assert "%" not in search.page.locator("image-search").inner_text()


def test_answer_line_names_model_generation_and_time(open_search: OpenSearch) -> None:
    search = open_search("#q=blue+square")
    search.settle()
    expect(search.answer).to_contain_text("Best 24 images")
    expect(search.answer).to_contain_text(re.compile(r"tiny · generation \d+ · exact"))
    expect(search.answer).to_contain_text(re.compile(r"\d ms"))


@pytest.mark.slow
def test_a_pause_in_typing_searches_without_enter(open_search: OpenSearch) -> None:
    search = open_search()
    search.field.press_sequentially("green triangle", delay=5)
    search.expect_link("q", "green triangle")
    search.settle()
    assert search.ids() == search.found_by_text("green triangle")
    assert search.link()["q"] == ["green triangle"]


@pytest.mark.slow
def test_show_more_appends_the_next_pages_until_the_last(open_search: OpenSearch) -> None:
    search = open_search("#q=square")
    search.settle()
    more = search.page.get_by_role("button", name="Show more")
    more.click()
    expect(search.tiles).to_have_count(2 * PAGE_SIZE)
    search.expect_focused(search.ids()[PAGE_SIZE])
    more.click()
    expect(search.tiles).to_have_count(60)
    expect(more).to_have_count(0)
    expect(search.answer).to_contain_text("60 images")
    assert len(set(search.ids())) == 60
    assert search.ranks() == list(range(1, 61))


def test_dropped_image_finds_itself_first(open_search: OpenSearch, sites: Sites) -> None:
    search = open_search()
    expect(search.page.locator(".landing")).to_be_visible()
    with search.page.expect_response("**/search"):
        search.drop(_picture(sites, 7))
    search.settle()
    assert search.ids()[0] == "shape-7"
    assert search.scores()[0] == pytest.approx(1.0, abs=0.002)
    expect(search.page.locator(".field-chip")).to_contain_text("query.png")
    expect(search.page.locator(".field-chip img")).to_have_js_property("naturalWidth", 96)


@pytest.mark.slow
def test_pasted_and_chosen_images_are_searched_too(open_search: OpenSearch, sites: Sites) -> None:
    search = open_search()
    search.settle()
    search.drop(_picture(sites, 11), kind="paste", name="image.png")
    expect(search.tiles.first).to_have_attribute("data-id", "shape-11")
    assert search.ids()[0] == "shape-11"
    search.page.locator("input[type=file]").set_input_files(
        {"name": "chosen.png", "mimeType": "image/png", "buffer": _picture(sites, 12)}
    )
    expect(search.page.locator(".field-chip")).to_contain_text("chosen.png")
    expect(search.tiles.first).to_have_attribute("data-id", "shape-12")


@pytest.mark.slow
def test_dicom_films_are_chosen_and_dropped_with_any_type(open_search: OpenSearch) -> None:
    search = open_search()
    search.settle()
    chooser = search.page.locator("input[type=file]")
    assert {"image/*", "application/dicom", ".dcm"} <= set((chooser.get_attribute("accept") or "").split(","))
    film = encoded(make_film(1))
    for name, media_type in (("IM000001", ""), ("film.dcm", "application/dicom")):
        with search.page.expect_response("**/search") as response:
            search.drop(film, name=name, type=media_type)
        assert response.value.status == 200
        search.settle()
        expect(search.page.locator(".field-chip")).to_contain_text(name)
        assert len(search.ids()) == PAGE_SIZE
    with search.page.expect_response("**/search") as response:
        chooser.set_input_files({"name": "chosen.dcm", "mimeType": "", "buffer": film})
    assert response.value.status == 200
    expect(search.page.locator(".field-chip")).to_contain_text("chosen.dcm")


@pytest.mark.slow
def test_dragging_a_file_over_the_page_invites_to_drop_it(open_search: OpenSearch) -> None:
    search = open_search()
    overlay = search.page.locator(".drop-over")
    search.drop(b"", kind="dragenter")
    expect(overlay).to_be_visible()
    search.drop(b"", kind="dragleave")
    expect(overlay).not_to_be_visible()


@pytest.mark.slow
def test_removing_the_image_leads_back_to_the_beginning(open_search: OpenSearch, sites: Sites) -> None:
    search = open_search()
    search.drop(_picture(sites, 3))
    search.settle()
    search.page.get_by_role("button", name="Remove query.png").click()
    expect(search.page.locator(".landing")).to_be_visible()
    expect(search.answer).to_contain_text("24 of 60 images")


@pytest.mark.slow
def test_beginning_offers_sentences_of_the_collection(open_search: OpenSearch) -> None:
    search = open_search()
    example = search.page.locator(".example").nth(1)
    sentence = example.inner_text()
    example.click()
    search.settle()
    expect(search.field).to_have_value(sentence)
    assert search.ids() == search.found_by_text(sentence)


@pytest.mark.slow
def test_another_collection_takes_the_text_along(open_search: OpenSearch) -> None:
    search = open_search("#collection=shapes&q=circle")
    search.settle()
    search.page.get_by_label("Collection").select_option("tiles")
    expect(search.answer).to_contain_text("9 images")
    expect(search.field).to_have_value("circle")
    assert "collection=tiles" in search.page.url


@pytest.mark.slow
def test_a_text_that_was_cut_is_told(open_search: OpenSearch) -> None:
    search = open_search()
    search.search("a red circle beside a green square " * 10)
    cut = search.page.locator(".strip", has_text="The text was cut: the model reads 32 tokens")
    expect(cut).to_have_count(1)
    search.search("a red circle")
    expect(search.page.locator(".strip")).to_have_count(0)


@pytest.mark.slow
def test_an_answer_that_the_service_doubts_says_so(open_search: OpenSearch) -> None:
    search = open_search()
    search.settle()
    for confident, notes in ((False, 1), (True, 0), (None, 0)):
        search.page.route("**/search", partial(_answer_confidently, confident), times=1)
        search.search(f"a circle {confident}")
        expect(search.page.locator(".doubt")).to_have_count(notes)


def _answer_confidently(confident: bool | None, route: "Route") -> None:
    answered = route.fetch()
    route.fulfill(response=answered, json={**answered.json(), "confident": confident})


def test_late_answer_of_an_old_query_never_shows(open_search: OpenSearch, watch: Watch) -> None:
    search = open_search()
    held = []

    def hold_the_old(route: "Route") -> None:
        if "old" in (route.request.post_data or ""):
            held.append(route)
        else:
            route.continue_()

    search.page.route("**/search", hold_the_old)
    search.field.fill("old query")
    search.field.press("Enter")
    expect(search.page.locator(".skeleton").first).to_be_visible()
    search.search("a blue square")
    newer = search.ids()
    held[0].continue_()
    search.page.wait_for_timeout(300)
    assert search.ids() == newer == search.found_by_text("a blue square")
    expect(search.field).to_have_value("a blue square")


@pytest.mark.slow
def test_text_typed_while_the_page_starts_is_kept(open_search: OpenSearch) -> None:
    held: list[Route] = []
    search = open_search(
        before=lambda page: page.route("**/v1/collections", lambda route: held.append(route))
    )
    search.field.fill("a blue square")
    held[0].continue_()
    expect(search.page.get_by_role("button", name="a red circle", exact=True)).to_be_visible()
    expect(search.field).to_have_value("a blue square")
    search.field.press("Enter")
    search.settle()
    assert search.ids() == search.found_by_text("a blue square")


def test_markup_in_texts_is_shown_as_text(open_search: OpenSearch) -> None:
    search = open_search("#image=shape-5")
    expect(search.dialog.locator(".texts")).to_have_text(MARKUP)
    expect(search.dialog.locator(".texts b")).to_have_count(0)
    assert search.page.title() == "recoquest"


def _picture(sites: Sites, number: int) -> bytes:
    folder: Path = sites.host_folder.parent
    return (folder / "data" / "shapes" / "images" / f"{number}.png").read_bytes()

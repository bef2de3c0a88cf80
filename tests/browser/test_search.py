"""Searching by text and by image, and what the page tells of the answer."""

import re
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.browser.conftest import OpenSearch, Step
from tests.browser.search_page import PAGE_SIZE, expect
from tests.browser.service import MARKUP
from tests.dicom_films import encoded, make_film

if TYPE_CHECKING:
    from playwright.sync_api import Route

pytestmark = pytest.mark.browser


def test_a_text_finds_images_which_are_looked_at_to_the_last(open_search: OpenSearch, step: Step) -> None:
    search = open_search()
    page = search.page
    step("a text finds what the service finds, in the order of ranks")
    search.search("a red circle")
    assert search.ids() == search.found_by_text("a red circle")
    assert search.ranks() == list(range(1, PAGE_SIZE + 1))
    assert search.scores() == sorted(search.scores(), reverse=True)
    step("a screen reader hears what was found, and what each tile is")
    best = page.locator(".hit-score").first.inner_text().split()[0]
    told = f"24 images, more can be loaded. Best fused {best}."
    expect(page.get_by_role("status")).to_have_text(told)
    expect(page.get_by_role("button", name="Number 1. fused")).to_have_count(1)
    step("the line above the hits names model, generation and time")
    expect(search.answer).to_contain_text("Best 24 images")
    expect(search.answer).to_contain_text(re.compile(r"tiny · generation \d+ · exact"))
    expect(search.answer).to_contain_text(re.compile(r"\d ms"))
    step("a tile shows its picture whole, its text and its labels")
    tile = page.locator('.hit:not([data-id="shape-5"], [data-id="shape #4?"])').first
    record = search.ask(f"v1/collections/shapes/images/{tile.get_attribute('data-id')}")
    expect(tile.locator(".hit-text")).to_have_text(record["texts"][0])
    expect(tile.locator(".tag:not(.words)")).to_have_text(record["labels"])
    expect(tile.locator("img")).not_to_have_js_property("naturalWidth", 0)
    expect(tile.locator("img")).to_have_css("object-fit", "contain")
    step("scores are cosines, and never percentages")
    search.go("#q=blue+square&words=off")
    first = search.ask("v1/collections/shapes/search", {"text": "blue square"})["hits"][0]
    shown = page.locator(".hit-score").first.inner_text()
    assert shown == f"{first['score']:.3f} cosine".replace("-", "\u2212")
    assert "%" not in page.locator("image-search").inner_text()
    step("further pages follow until the last")
    search.more.click()
    expect(search.tiles).to_have_count(2 * PAGE_SIZE)
    search.expect_focused(search.ids()[PAGE_SIZE])
    search.more.click()
    expect(search.tiles).to_have_count(60)
    expect(search.more).to_have_count(0)
    expect(search.answer).to_contain_text("60 images")
    assert len(set(search.ids())) == 60
    assert search.ranks() == list(range(1, 61))
    step("markup in a text is shown as text")
    page.goto(f"{search.service}/#image=shape-5")
    expect(search.dialog.locator(".texts")).to_have_text(MARKUP)
    expect(search.dialog.locator(".texts b")).to_have_count(0)
    assert page.title() == "recoquest"


@pytest.mark.slow
def test_texts_are_begun_in_many_ways_and_the_page_says_what_became_of_them(
    open_search: OpenSearch, step: Step
) -> None:
    search = open_search()
    strip = search.page.locator(".strip")
    step("a sentence of the collection is offered")
    example = search.page.locator(".example").nth(1)
    sentence = example.inner_text()
    example.click()
    search.settle()
    expect(search.field).to_have_value(sentence)
    assert search.ids() == search.found_by_text(sentence)
    step("a pause in typing searches without Enter")
    search.go("#collection=shapes")
    search.field.press_sequentially("green triangle", delay=5)
    search.expect_link("q", "green triangle")
    search.settle()
    assert search.ids() == search.found_by_text("green triangle")
    step("a text that was cut is told")
    search.search("a red circle beside a green square " * 10)
    expect(strip.filter(has_text="The text was cut: the model reads 32 tokens")).to_have_count(1)
    search.search("a red circle")
    expect(strip).to_have_count(0)
    step("an answer that the service doubts says so")
    for confident, notes in ((False, 1), (True, 0), (None, 0)):
        search.page.route("**/search", partial(_answer_confidently, confident), times=1)
        search.search(f"a circle {confident}")
        expect(search.page.locator(".doubt")).to_have_count(notes)
    step("another collection takes the text along")
    search.search("circle")
    search.page.get_by_label("Collection").select_option("tiles")
    expect(search.answer).to_contain_text("9 images")
    expect(search.field).to_have_value("circle")
    assert "collection=tiles" in search.page.url


def _answer_confidently(confident: bool | None, route: "Route") -> None:
    answered = route.fetch()
    route.fulfill(response=answered, json={**answered.json(), "confident": confident})


def test_what_comes_late_takes_nothing_from_the_reader(open_search: OpenSearch, step: Step) -> None:
    held: list[Route] = []
    step("a text typed while the page starts is kept")
    search = open_search(
        before=lambda page: page.route("**/v1/collections", lambda route: held.append(route))
    )
    search.field.fill("a blue square")
    held.pop().continue_()
    expect(search.button("a red circle")).to_be_visible()
    expect(search.field).to_have_value("a blue square")
    search.field.press("Enter")
    search.settle()
    assert search.ids() == search.found_by_text("a blue square")
    step("the late answer of an old query never shows")

    def hold_the_old(route: "Route") -> None:
        if "old" in (route.request.post_data or ""):
            held.append(route)
        else:
            route.continue_()

    search.page.route("**/search", hold_the_old)
    search.field.fill("old query")
    search.field.press("Enter")
    expect(search.page.locator(".results")).to_have_attribute("aria-busy", "true")
    search.search("a green square")
    newer = search.ids()
    held[0].continue_()
    search.page.wait_for_timeout(300)
    assert search.ids() == newer == search.found_by_text("a green square")
    expect(search.field).to_have_value("a green square")


def test_an_image_is_brought_searched_with_joined_by_words_and_removed(
    open_search: OpenSearch, step: Step
) -> None:
    search = open_search()
    chip, overlay = search.page.locator(".field-chip"), search.page.locator(".drop-over")
    step("dragging a file over the page invites to drop it")
    search.settle()
    search.drop(b"", kind="dragenter")
    expect(overlay).to_be_visible()
    search.drop(b"", kind="dragleave")
    expect(overlay).not_to_be_visible()
    step("a dropped image finds itself first")
    picture = search.picture(7)
    with search.answered():
        search.drop(picture)
    assert search.ids()[0] == "shape-7"
    assert search.scores()[0] == pytest.approx(1.0, abs=0.002)
    expect(chip).to_contain_text("query.png")
    expect(chip.locator("img")).to_have_js_property("naturalWidth", 96)
    expect(search.words).to_have_count(0)
    expect(search.page.locator(".judge")).to_have_count(0)
    step("an image and words make one query")
    text = "a blue triangle"
    search.search(text)
    expect(chip).to_contain_text("query.png")
    expect(search.words).to_be_checked()
    assert search.ids() == search.found_by_picture(picture, text=text, keywords=text)
    search.button("Remove query.png").click()
    search.expect_link("by")
    search.settle()
    assert search.ids() == search.found_by_text(text)
    step("the image removed leads back to the beginning")
    search.go("#collection=shapes")
    search.drop(picture)
    expect(search.tiles.first).to_have_attribute("data-id", "shape-7")
    search.button("Remove query.png").click()
    expect(search.page.locator(".landing")).to_be_visible()
    expect(search.answer).to_contain_text("24 of 60 images")


@pytest.mark.slow
def test_images_and_dicom_films_are_pasted_chosen_and_dropped(open_search: OpenSearch, step: Step) -> None:
    search = open_search()
    chip, chooser = search.page.locator(".field-chip"), search.page.locator("input[type=file]")
    search.settle()
    step("an image is pasted")
    search.drop(search.picture(11), kind="paste", name="image.png")
    expect(search.tiles.first).to_have_attribute("data-id", "shape-11")
    step("an image is chosen")
    chosen = search.picture(12)
    chooser.set_input_files({"name": "chosen.png", "mimeType": "image/png", "buffer": chosen})
    expect(chip).to_contain_text("chosen.png")
    expect(search.tiles.first).to_have_attribute("data-id", "shape-12")
    step("films come with any type")
    assert {"image/*", "application/dicom", ".dcm"} <= set((chooser.get_attribute("accept") or "").split(","))
    film = encoded(make_film(1))
    for name, media_type in (("IM000001", ""), ("film.dcm", "application/dicom")):
        with search.answered():
            search.drop(film, name=name, type=media_type)
        expect(chip).to_contain_text(name)
        assert len(search.ids()) == PAGE_SIZE
    with search.page.expect_response("**/search") as response:
        chooser.set_input_files({"name": "chosen.dcm", "mimeType": "", "buffer": film})
    assert response.value.status == 200
    expect(chip).to_contain_text("chosen.dcm")

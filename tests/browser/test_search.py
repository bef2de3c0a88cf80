"""Searching by text, exact words and by image, and what the page says of the answer or of what is wrong."""

import json
import re
from functools import partial
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, Route

from tests.browser.conftest import OpenSearch, Watch, step
from tests.browser.search_page import PAGE_SIZE, SearchPage, altered, expect, serious
from tests.browser.service import MARKUP
from tests.dicom_films import encoded, make_film

pytestmark = pytest.mark.browser

TEXT = "purple triangle"


def test_a_text_finds_images_which_are_looked_at_to_the_last(open_search: OpenSearch) -> None:
    search = open_search()
    page = search.page
    step("a text finds what the service finds, in the order of ranks")
    search.search("a red circle")
    assert search.ids() == search.found(text="a red circle")
    assert search.ranks() == list(range(1, PAGE_SIZE + 1))
    assert search.scores() == sorted(search.scores(), reverse=True)
    step("a screen reader hears what was found, and what each tile is")
    best = page.locator(".hit-score").first.inner_text().split()[0]
    expected = f"24 images, more can be loaded. Best fused {best}."
    expect(page.get_by_role("status")).to_have_text(expected)
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
def test_searches_begin_in_many_ways_and_the_page_says_what_became_of_them(open_search: OpenSearch) -> None:
    search = open_search()
    strip = search.page.locator(".strip")
    step("a sentence of the collection is offered")
    example = search.page.locator(".example").nth(1)
    sentence = example.inner_text()
    example.click()
    search.settle()
    expect(search.field).to_have_value(sentence)
    assert search.ids() == search.found(text=sentence)
    step("a pause in typing searches without Enter")
    search.go("#collection=shapes")
    search.field.press_sequentially("green triangle", delay=5)
    search.expect_link("q", "green triangle")
    search.settle()
    assert search.ids() == search.found(text="green triangle")
    step("a truncated text is reported")
    search.search("a red circle beside a green square " * 10)
    expect(strip.filter(has_text="The text was cut: the model reads 32 tokens")).to_have_count(1)
    search.search("a red circle")
    expect(strip).to_have_count(0)
    step("an answer that the service doubts says so")
    for confident, notes in ((False, 1), (True, 0), (None, 0)):
        altered(search.page, "**/search", partial(dict, confident=confident), times=1)
        search.search(f"a circle {confident}")
        expect(search.page.locator(".doubt")).to_have_count(notes)
    search.go("#collection=shapes")
    chip, chooser = search.page.locator(".field-chip"), search.page.locator("input[type=file]")
    search.drop(search.picture(11), kind="paste", name="image.png")
    expect(search.tiles.first).to_have_attribute("data-id", "shape-11")
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


def test_what_comes_late_takes_nothing_from_the_reader(open_search: OpenSearch) -> None:
    pending: list[Route] = []

    def hold(route: Route) -> None:
        if any(word in (route.request.post_data or "") for word in ("blue", "old")):
            pending.append(route)
        else:
            route.continue_()

    def before(page: Page) -> None:
        page.route("**/v1/collections", lambda route: pending.append(route))
        page.route("**/search", hold)

    step("a text typed while the page starts is kept")
    search = open_search(before=before, reduced_motion="reduce")
    search.field.fill("a blue square")
    pending.pop().continue_()
    expect(search.button("a red circle")).to_be_visible()
    expect(search.field).to_have_value("a blue square")
    search.field.press("Enter")
    step("where motion is reduced, nothing moves until the hits come")
    expect(search.page.locator(".skeleton").first).to_have_css("animation-iteration-count", "1")
    pending.pop().continue_()
    search.settle()
    assert search.ids() == search.found(text="a blue square")
    step("the late answer of an old query never shows")
    search.field.fill("old query")
    search.field.press("Enter")
    expect(search.page.locator(".results")).to_have_attribute("aria-busy", "true")
    search.search("a green square")
    newer = search.ids()
    pending[0].continue_()
    search.page.wait_for_timeout(300)
    assert search.ids() == newer == search.found(text="a green square")
    expect(search.field).to_have_value("a green square")


@pytest.mark.slow
def test_an_image_is_brought_searched_with_joined_by_words_and_removed(open_search: OpenSearch) -> None:
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
    assert search.ids() == search.found(text=text)
    step("the image removed leads back to the beginning")
    search.go("#collection=shapes")
    search.drop(picture)
    expect(search.tiles.first).to_have_attribute("data-id", "shape-7")
    search.button("Remove query.png").click()
    expect(search.page.locator(".landing")).to_be_visible()
    expect(search.answer).to_contain_text("24 of 60 images")


def _cut_off(page: Page, pattern: str = "**/search") -> None:
    """Let the next request to an address fail as it does without a connection."""
    page.route(pattern, lambda route: route.abort("internetdisconnected"), times=1)


def _enter(search: SearchPage, text: str) -> None:
    search.field.fill(text)
    search.field.press("Enter")


@pytest.mark.slow
def test_what_cannot_be_searched_is_told(open_search: OpenSearch, watch: Watch) -> None:
    watch.allow("Failed to load resource")
    search = open_search(bypass_csp=True).settle()
    search.drop(b"these are words", name="words.png")
    expect(search.notice).to_contain_text("415")
    assert len(search.notice.inner_text()) > 40
    step("a file of another kind, before it is sent")
    search.drop(b"words", name="words.txt", type="text/plain")
    expect(search.notice).to_contain_text("words.txt is not an image")
    step("a filter on an unknown field, with the known ones")
    search.page.goto(f'{search.service}/#q=circle&filter={{"field":"color","eq":"red"}}')
    for part in ("'color'", "colour", "422"):
        expect(search.notice).to_contain_text(part)
    expect(search.tiles).to_have_count(0)
    search.press("Clear the filters")
    assert search.ids() == search.found(text="circle")
    for wrong in ({"field": "colour", "equals": "red"}, {}, {"field": "colour", "any_of": "red"}):
        step(f"a filter that is none: {wrong}")
        search.page.goto(f"{search.service}/#collection=shapes&filter={quote(json.dumps(wrong))}")
        expect(search.notice).to_contain_text("422")
        expect(search.tiles).to_have_count(0)
    search.page.goto(f"{search.service}/#collection=nowhere&q=circle")
    expect(search.notice).to_contain_text("nowhere")
    expect(search.notice).to_contain_text("404")
    assert serious(search.page) == []
    search.page.get_by_label("Collection").select_option("shapes")
    search.settle()


def test_what_failed_can_be_tried_again(open_search: OpenSearch, watch: Watch) -> None:
    watch.allow("ERR_INTERNET_DISCONNECTED")
    watch.allow("Failed to load resource")
    step("the service is down at the start")
    search = open_search("#q=circle", before=lambda page: _cut_off(page, "**/v1/collections"))
    # Its name ends with the seconds that are left.
    again = search.page.get_by_role("button", name="Try again")
    expect(search.notice).to_contain_text("The service cannot be reached")
    again.click()
    search.settle()
    _cut_off(search.page)
    _enter(search, "square")
    expect(search.notice).to_contain_text("The service cannot be reached")
    again.click()
    search.settle()
    step("hits stay when the next page fails")
    _cut_off(search.page)
    search.more.click()
    expect(search.notice).to_contain_text("cannot be reached")
    expect(search.tiles).to_have_count(24)
    again.click()
    expect(search.tiles).to_have_count(48)
    step("overload says when to try again")
    problem = {"title": "Too many queries", "status": 429, "detail": "Come back in a second."}
    headers = {"Retry-After": "2", "Content-Type": "application/problem+json"}
    search.page.route(
        "**/search", lambda route: route.fulfill(status=429, headers=headers, json=problem), times=1
    )
    _enter(search, "triangle")
    expect(search.notice).to_contain_text("Come back in a second.")
    expect(again).to_be_disabled()
    expect(again).to_be_enabled()
    again.click()
    search.settle()
    expect(search.notice).to_have_count(0)


@pytest.mark.slow
def test_typed_words_are_looked_up_until_the_switch_is_off(open_search: OpenSearch, watch: Watch) -> None:
    search = open_search("#collection=shapes&q=purple+triangle")
    tags = search.page.locator(".tag.words")
    search.settle()
    step("both switches are on, and no link names them")
    expect(search.words).to_be_checked()
    expect(search.likeness).to_be_checked()
    search.expect_link("words")
    fused = search.ids()
    step("hits with the words are tagged, and scores are named by their kind")
    query = {"text": TEXT, "keywords": TEXT, "limit": 24}
    answer = search.ask("v1/collections/shapes/search", query)
    tagged = search.page.locator(".hit", has=tags)
    with_words = [hit["id"] for hit in answer["hits"] if "keywords" in hit["found_by"]]
    assert tagged.evaluate_all("tiles => tiles.map((tile) => tile.dataset.id)") == with_words != []
    assert search.page.locator(".hit-score").first.inner_text() == f"{answer['hits'][0]['score']:.3f} fused"
    named = search.page.get_by_role("button", name=re.compile("Number 1. fused.*exact words"))
    expect(named).to_have_count(1)
    step("switched off, likeness alone ranks, also after a reload")
    with search.answered():
        search.words.uncheck()
    expect(tags).to_have_count(0)
    plain = search.found(text=TEXT, keywords=None)
    assert search.ids() == plain != fused == search.found(text=TEXT)
    search.expect_link("words", "off")
    search.reload()
    assert search.ids() == plain
    with search.answered():
        search.words.check()
    assert search.ids() == fused
    step("an open image says what found it")
    search.open_hit()
    cosine = f"{answer['hits'][0]['cosine']:.3f}".replace("-", "\u2212")
    expect(search.dialog.locator(".dialog-score")).to_contain_text(f"exact words; cosine {cosine}")
    search.keys("Escape")
    # Closing goes a step back, which ends a step forward that is under way.
    search.expect_link("image")
    step("a text whose words cannot be looked up is matched by likeness")
    watch.allow("422")
    search.go("#collection=shapes")
    for text in ("?!", " ".join(f"word{number}" for number in range(70))):
        search.search(text)
        assert search.ids() == search.found(text=text, keywords=None)
    search.search(TEXT)
    assert search.ids() == fused
    step("a query that states an absence is found by findings, without exact words")
    search.go("#q=no+pleural+effusion&words=off")
    expect(search.page.locator(".strip")).to_have_count(0)
    message = search.page.locator(".hit[data-id='shape-6']")
    expect(message.locator(".tag.words")).to_have_count(0)
    message.locator(".hit-open").click()
    expect(search.dialog.locator(".dialog-score")).to_contain_text("by likeness and findings; cosine")
    search.go("#q=triangle&words=only")
    step("the filters count what has the words, where only that is shown")
    having = search.ask("v1/collections/shapes/count", {"keywords": "triangle"})["count"]
    expect(search.checks("labels")).to_have_text(["circle0", "square0", f"triangle{having}"])
    with search.page.expect_response("**/facets"):
        search.likeness.check()
    # Hits need have none of the words then.
    expect(search.checks("labels")).to_have_text(["circle20", "square20", "triangle20"])
    step("words that no image has are reported with a way on")
    circles = {"field": "labels", "eq": "circle"}
    search.page.goto(f'{search.service}/#q=giraffe&words=only&filter={{"field":"labels","eq":"circle"}}')
    expect(search.notice).to_contain_text("No image has these words")
    expect(search.notice).to_contain_text("an image that passes the filters")
    expect(search.answer).to_contain_text("0 images")
    search.press("Match by likeness")
    expect(search.words).to_be_checked()
    assert search.ids() == search.found(text="giraffe", filter=circles)
    step("in a collection without texts none are looked up, unless switched on")
    examples = search.ask("v1/collections/shapes")["examples"]
    textless = {"examples": [{**example, "text": ""} for example in examples]}
    altered(search.page, "**/v1/collections/shapes", lambda _: textless)
    search.go("?collection=shapes&q=red")
    search.search(TEXT)
    expect(search.words).not_to_be_checked()
    assert search.ids() == search.found(text=TEXT, keywords=None)
    with search.answered():
        search.words.check()
    assert search.ids() == search.found(text=TEXT)


@pytest.mark.slow
def test_the_switches_stay_and_words_are_marked_where_they_are(open_search: OpenSearch) -> None:
    search = open_search()
    expect(search.page.locator(".landing")).to_be_visible()
    step("it is off before the first search, and stays off with examples")
    search.words.uncheck()
    search.expect_link("words", "off")
    expect(search.page.locator(".landing")).to_be_visible()
    search.search("a red circle")
    assert search.ids() == search.found(text="a red circle", keywords=None)
    disliked = search.mark(0, "Less like this")
    assert search.ids() == search.found(text="a red circle", keywords=None, unlike=[disliked])
    search.go("#q=purple&words=exact")
    expect(search.words).to_be_checked()
    step("w and Space switch by keyboard, but not in the field")
    search.field.focus()
    search.keys("ArrowDown", "w")
    expect(search.words).not_to_be_checked()
    expect(search.page.locator(".tag.words")).to_have_count(0)
    search.words.focus()
    search.keys("Space")
    expect(search.words).to_be_checked()
    search.field.fill("w")
    expect(search.words).to_be_checked()
    step("words that no image has are reported")
    search.go("#q=giraffe&words=exact")
    strip = search.page.locator(".strip")
    expect(strip).to_contain_text("No hit has any of these words in its texts or report.")
    assert search.ids() == search.found(text="giraffe")
    search.search("giraffe circle")
    expect(strip).to_have_text("No text here has the word \u201cgiraffe\u201d.")
    search.search("giraffe circle elk")
    expect(strip).to_have_text("No text here has the words \u201cgiraffe\u201d and \u201celk\u201d.")
    search.search("circle")
    expect(strip).to_have_count(0)
    search.go("#q=purple+triangle")
    step("likeness is switched off: all that have the words are shown, without scores")
    with search.answered():
        search.likeness.uncheck()
    expect(search.words).to_be_checked()
    search.expect_link("words", "only")
    answer = search.ask("v1/collections/shapes/search", {"keywords": TEXT, "limit": 100})
    results = [hit["id"] for hit in answer["hits"]]
    assert search.ids() == results[:24]
    expect(search.answer).to_contain_text(f"24 of {answer['count']} images with the words")
    expect(search.page.locator(".hit-score")).to_have_count(0)
    expect(search.page.locator(".judge")).to_have_count(0)
    expect(search.tiles.first.locator("mark").first).to_be_visible()
    search.more.click()
    expect(search.tiles).to_have_count(len(results))
    assert search.ids() == results
    step("one of the two is always on")
    search.reload()
    expect(search.likeness).not_to_be_checked()
    assert search.ids() == results[:24]
    with search.answered():
        search.words.uncheck()
    expect(search.likeness).to_be_checked()
    assert search.ids() == search.found(text=TEXT, keywords=None)
    step("with an example, words alone rank by both")
    search.go("#q=purple&words=only")
    liked = search.mark(0, "More like this")
    assert search.ids() == search.found(keywords="purple", like=[liked]) != search.found(like=[liked])
    step("more images have the words than are counted")
    search.go("#collection=shapes")
    search.likeness.uncheck()
    altered(search.page, "**/search", lambda _: {"count": None}, times=1)
    search.search("circle")
    expect(search.answer).to_contain_text("20 of over 10,000 images with the words")
    search.go("#q=middle+circle&words=exact")
    step("a sentence of the texts is shown once")
    tile = search.page.locator(".hit", has=search.page.locator("mark", has_text="middle")).first
    expect(tile.locator(".hit-text")).to_have_text(["there is a circle in the middle"])
    expect(tile.locator("mark")).to_have_text(["circle", "middle"])
    search.go("#q=picture+shows&words=exact")
    report = search.page.locator('.hit[data-id="shape-0"]')
    expect(report.locator(".hit-text")).to_have_text("The picture shows a circle.")
    expect(report.locator("mark")).to_have_text(["picture", "shows"])
    step("words behind characters of two units")
    far = {"matched": {"text": "😀 a red 😀 circle", "spans": [[4, 7], [10, 16]]}}
    marked = partial(map, lambda hit: {**hit, **far} if hit["rank"] == 1 else hit)
    altered(search.page, "**/search", lambda page: {"hits": [*marked(page["hits"])]}, times=1)
    search.search("red circle")
    expect(search.tiles.first.locator(".hit-text")).to_have_text("😀 a red 😀 circle")
    expect(search.tiles.first.locator("mark")).to_have_text(["red", "circle"])

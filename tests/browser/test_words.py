"""The switches for exact words and for likeness."""

import re

import pytest
from playwright.sync_api import Route

from tests.browser.conftest import OpenSearch, Step, Watch
from tests.browser.search_page import expect

pytestmark = pytest.mark.browser

TEXT = "purple triangle"


def test_typed_words_are_looked_up_until_the_switch_is_off(
    open_search: OpenSearch, watch: Watch, step: Step
) -> None:
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
    plain = search.found_by_text(TEXT, keywords=None)
    assert search.ids() == plain != fused == search.found_by_text(TEXT)
    search.expect_link("words", "off")
    search.page.reload()
    search.settle()
    assert search.ids() == plain
    with search.answered():
        search.words.check()
    assert search.ids() == fused
    step("an open image says what found it")
    search.open_hit()
    cosine = f"{answer['hits'][0]['cosine']:.3f}".replace("-", "\u2212")
    expect(search.dialog.locator(".dialog-score")).to_contain_text(f"exact words; cosine {cosine}")
    search.page.keyboard.press("Escape")
    # Closing goes a step back, which ends a step forward that is under way.
    search.expect_link("image")
    step("a text whose words cannot be looked up is matched by likeness")
    watch.allow("422")
    search.go("#collection=shapes")
    for text in ("?!", " ".join(f"word{number}" for number in range(70))):
        search.search(text)
        assert search.ids() == search.found_by_text(text, keywords=None)
    search.search(TEXT)
    assert search.ids() == fused
    step("a query that states an absence is found by findings, without exact words")
    search.go("#q=no+pleural+effusion&words=off")
    expect(search.page.locator(".strip")).to_have_count(0)
    said = search.page.locator(".hit[data-id='shape-6']")
    expect(said.locator(".tag.words")).to_have_count(0)
    said.locator(".hit-open").click()
    expect(search.dialog.locator(".dialog-score")).to_contain_text("by likeness and findings; cosine")


def test_no_words_are_looked_up_in_a_collection_without_texts_unless_switched_on(
    open_search: OpenSearch,
) -> None:
    def textless(route: Route) -> None:
        answer = route.fetch()
        examples = [{**example, "text": ""} for example in answer.json()["examples"]]
        route.fulfill(response=answer, json={**answer.json(), "examples": examples})

    search = open_search(before=lambda page: page.route("**/v1/collections/shapes", textless))
    search.settle()
    search.search(TEXT)
    expect(search.words).not_to_be_checked()
    assert search.ids() == search.found_by_text(TEXT, keywords=None)
    with search.answered():
        search.words.check()
    assert search.ids() == search.found_by_text(TEXT)


@pytest.mark.slow
def test_the_switch_stays_while_the_search_changes(open_search: OpenSearch, step: Step) -> None:
    search = open_search()
    expect(search.page.locator(".landing")).to_be_visible()
    step("it is switched off before anything is asked, and stays off beside examples")
    search.words.uncheck()
    search.expect_link("words", "off")
    expect(search.page.locator(".landing")).to_be_visible()
    search.search("a red circle")
    assert search.ids() == search.found_by_text("a red circle", keywords=None)
    disliked = search.mark(0, "Less like this")
    assert search.ids() == search.found(text="a red circle", keywords=None, unlike=[disliked])
    step("the next page is of the same order")
    search.go("#q=purple&words=exact")
    search.more.click()
    expect(search.tiles).to_have_count(48)
    assert search.ids() == search.found_by_text("purple", limit=48)
    step("w and Space switch by keyboard, but not in the field")
    search.field.focus()
    search.page.keyboard.press("ArrowDown")
    search.page.keyboard.press("w")
    expect(search.words).not_to_be_checked()
    expect(search.page.locator(".tag.words")).to_have_count(0)
    search.words.focus()
    search.page.keyboard.press("Space")
    expect(search.words).to_be_checked()
    search.field.fill("w")
    expect(search.words).to_be_checked()
    step("words that no image has are told")
    search.go("#q=giraffe&words=exact")
    strip = search.page.locator(".strip")
    expect(strip).to_contain_text("No image found has any of these words in its texts or report.")
    assert search.ids() == search.found_by_text("giraffe")
    search.search("giraffe circle")
    expect(strip).to_have_text("No text here has the word \u201cgiraffe\u201d.")
    search.search("giraffe circle elk")
    expect(strip).to_have_text("No text here has the words \u201cgiraffe\u201d and \u201celk\u201d.")
    search.search("circle")
    expect(strip).to_have_count(0)


@pytest.mark.slow
def test_without_likeness_only_images_with_the_words_are_shown(open_search: OpenSearch, step: Step) -> None:
    search = open_search("#q=purple+triangle")
    search.settle()
    step("likeness is switched off: all that have the words are shown, without scores")
    with search.answered():
        search.likeness.uncheck()
    expect(search.words).to_be_checked()
    search.expect_link("words", "only")
    answer = search.ask("v1/collections/shapes/search", {"keywords": TEXT, "limit": 100})
    found = [hit["id"] for hit in answer["hits"]]
    assert search.ids() == found[:24]
    expect(search.answer).to_contain_text(f"24 of {answer['count']} images with the words")
    expect(search.page.locator(".hit-score")).to_have_count(0)
    expect(search.page.locator(".judge")).to_have_count(0)
    expect(search.tiles.first.locator("mark").first).to_be_visible()
    search.more.click()
    expect(search.tiles).to_have_count(len(found))
    assert search.ids() == found
    step("one of the two is always on")
    search.page.reload()
    search.settle()
    expect(search.likeness).not_to_be_checked()
    assert search.ids() == found[:24]
    with search.answered():
        search.words.uncheck()
    expect(search.likeness).to_be_checked()
    assert search.ids() == search.found_by_text(TEXT, keywords=None)
    step("beside an example, words alone rank by both")
    search.go("#q=purple&words=only")
    liked = search.mark(0, "More like this")
    assert search.ids() == search.found(keywords="purple", like=[liked]) != search.found(like=[liked])
    step("more images have the words than are counted")
    search.go("#collection=shapes")
    search.likeness.uncheck()

    def uncounted(route: Route) -> None:
        route.fulfill(json={**route.fetch().json(), "count": None})

    search.page.route("**/search", uncounted, times=1)
    search.search("circle")
    expect(search.answer).to_contain_text("20 of over 10,000 images with the words")


def test_words_alone_are_counted_in_the_filters_and_where_none_has_them_there_is_a_way_on(
    open_search: OpenSearch, step: Step
) -> None:
    search = open_search("#q=triangle&words=only")
    search.settle()
    step("the filters count what has the words, where only that is shown")
    having = search.ask("v1/collections/shapes/count", {"keywords": "triangle"})["count"]
    expect(search.checks("labels")).to_have_text(["circle0", "square0", f"triangle{having}"])
    with search.page.expect_response("**/facets"):
        search.likeness.check()
    # Hits need have none of the words then.
    expect(search.checks("labels")).to_have_text(["circle20", "square20", "triangle20"])
    step("words that no image has are told with a way on")
    circles = {"field": "labels", "eq": "circle"}
    search.page.goto(f'{search.service}/#q=giraffe&words=only&filter={{"field":"labels","eq":"circle"}}')
    expect(search.notice).to_contain_text("No image has these words")
    expect(search.notice).to_contain_text("an image that passes the filters")
    expect(search.answer).to_contain_text("0 images")
    search.press("Match by likeness")
    expect(search.words).to_be_checked()
    assert search.ids() == search.found_by_text("giraffe", filter=circles)

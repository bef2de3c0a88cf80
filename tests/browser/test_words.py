"""The switch for exact words."""

import re

import pytest
from playwright.sync_api import Route

from tests.browser.conftest import OpenSearch, Watch
from tests.browser.search_page import expect

pytestmark = pytest.mark.browser


def test_typed_words_are_looked_up_until_the_switch_is_off(open_search: OpenSearch) -> None:
    search = open_search("#collection=shapes&q=purple+triangle")
    search.settle()
    expect(search.words).to_be_checked()
    expect(search.likeness).to_be_checked()
    search.expect_link("words")
    fused = search.ids()
    with search.page.expect_response("**/search"):
        search.words.uncheck()
    search.settle()
    expect(search.page.locator(".tag.words")).to_have_count(0)
    plain = search.found_by_text("purple triangle", keywords=None)
    assert search.ids() == plain != fused == search.found_by_text("purple triangle")
    search.expect_link("words", "off")
    search.page.reload()
    search.settle()
    assert search.ids() == plain
    with search.page.expect_response("**/search"):
        search.words.check()
    search.settle()
    assert search.ids() == fused


@pytest.mark.parametrize("text", ["?!", " ".join(f"word{number}" for number in range(70))])
def test_a_text_whose_words_cannot_be_looked_up_is_matched_by_likeness(
    open_search: OpenSearch, text: str, watch: Watch
) -> None:
    watch.allow("422")
    search = open_search("#collection=shapes")
    search.settle()
    search.search(text)
    assert search.ids() == search.found_by_text(text, keywords=None)
    search.search("purple triangle")
    assert search.ids() == search.found_by_text("purple triangle")


@pytest.mark.parametrize("switched", [False, True])
def test_no_words_are_looked_up_in_a_collection_without_texts_unless_switched_on(
    open_search: OpenSearch, switched: bool
) -> None:
    search = open_search("#collection=shapes")
    search.settle()

    def textless(route: Route) -> None:
        answer = route.fetch()
        examples = [{**example, "text": ""} for example in answer.json()["examples"]]
        route.fulfill(response=answer, json={**answer.json(), "examples": examples})

    search.page.route("**/v1/collections/shapes", textless)
    search.page.reload()
    search.settle()
    search.search("purple triangle")
    expect(search.words).not_to_be_checked()
    assert search.ids() == search.found_by_text("purple triangle", keywords=None)
    if switched:
        with search.page.expect_response("**/search"):
            search.words.check()
        search.settle()
        assert search.ids() == search.found_by_text("purple triangle")


def test_hits_with_the_words_are_tagged_and_scores_named_by_their_kind(open_search: OpenSearch) -> None:
    search = open_search("#q=purple+triangle&words=exact")
    search.settle()
    expect(search.words).to_be_checked()
    query = {"text": "purple triangle", "keywords": "purple triangle", "limit": 24}
    answer = search.ask("v1/collections/shapes/search", query)
    tagged = search.page.locator(".hit", has=search.page.locator(".tag.words"))
    with_words = [hit["id"] for hit in answer["hits"] if "keywords" in hit["found_by"]]
    assert tagged.evaluate_all("tiles => tiles.map((tile) => tile.dataset.id)") == with_words != []
    assert search.page.locator(".hit-score").first.inner_text() == f"{answer['hits'][0]['score']:.3f} fused"
    expect(search.page.get_by_role("button", name=re.compile("Number 1. fused.*exact words"))).to_have_count(
        1
    )
    search.tiles.first.locator(".hit-open").click()
    cosine = f"{answer['hits'][0]['cosine']:.3f}".replace("-", "\u2212")
    expect(search.dialog.locator(".dialog-score")).to_contain_text(f"exact words; cosine {cosine}")


@pytest.mark.slow
def test_words_that_no_image_has_are_told(open_search: OpenSearch) -> None:
    search = open_search("#q=giraffe&words=exact")
    search.settle()
    strip = search.page.locator(".strip")
    expect(strip).to_contain_text("No image found has any of these words in its texts or report.")
    assert search.ids() == search.found_by_text("giraffe")
    search.search("giraffe circle")
    expect(strip).to_have_text(re.compile("^No text here has the word \u201cgiraffe\u201d.$"))
    search.search("giraffe circle elk")
    expect(strip).to_have_text(
        re.compile("^No text here has the words \u201cgiraffe\u201d and \u201celk\u201d.$")
    )
    search.search("circle")
    expect(strip).to_have_count(0)


def test_a_query_that_states_an_absence_is_found_by_findings_without_exact_words(
    open_search: OpenSearch,
) -> None:
    search = open_search("#q=no+pleural+effusion&words=off")
    search.settle()
    expect(search.page.locator(".strip")).to_have_count(0)
    said = search.page.locator(".hit[data-id='shape-6']")
    expect(said.locator(".tag.words")).to_have_count(0)
    said.locator(".hit-open").click()
    expect(search.dialog.locator(".dialog-score")).to_contain_text("by likeness and findings; cosine")


@pytest.mark.slow
def test_the_switch_stays_while_the_text_changes_and_goes_beside_examples(open_search: OpenSearch) -> None:
    search = open_search()
    expect(search.page.locator(".landing")).to_be_visible()
    search.words.uncheck()
    search.expect_link("words", "off")
    expect(search.page.locator(".landing")).to_be_visible()
    search.search("a red circle")
    assert search.ids() == search.found_by_text("a red circle", keywords=None)
    disliked = search.mark(0, "Less like this")
    assert search.ids() == search.found(text="a red circle", keywords=None, unlike=[disliked])


@pytest.mark.slow
def test_the_next_page_is_of_the_same_order(open_search: OpenSearch) -> None:
    search = open_search("#q=purple&words=exact")
    search.settle()
    search.page.get_by_role("button", name="Show more").click()
    expect(search.tiles).to_have_count(48)
    assert search.ids() == search.found_by_text("purple", keywords="purple", limit=48)


@pytest.mark.slow
def test_w_and_space_switch_by_keyboard(open_search: OpenSearch) -> None:
    search = open_search("#q=purple")
    search.settle()
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


@pytest.mark.slow
def test_an_image_in_the_field_has_no_words(open_search: OpenSearch) -> None:
    search = open_search("#q=purple&words=exact")
    search.settle()
    picture = search.page.request.get(f"{search.service}/v1/collections/shapes/images/shape-7/content").body()
    with search.page.expect_response("**/search"):
        search.drop(picture)
    search.settle()
    expect(search.words).to_have_count(0)
    assert search.ids()[0] == "shape-7"
    search.search("purple")
    expect(search.words).to_be_checked()


@pytest.mark.slow
def test_without_likeness_only_images_with_the_words_are_shown(open_search: OpenSearch) -> None:
    search = open_search("#q=purple+triangle")
    search.settle()
    with search.page.expect_response("**/search"):
        search.likeness.uncheck()
    search.settle()
    # One of the two is always on.
    expect(search.words).to_be_checked()
    search.expect_link("words", "only")
    answer = search.ask("v1/collections/shapes/search", {"keywords": "purple triangle", "limit": 100})
    found = [hit["id"] for hit in answer["hits"]]
    assert search.ids() == found[:24]
    expect(search.answer).to_contain_text(f"24 of {answer['count']} images with the words")
    expect(search.page.locator(".hit-score")).to_have_count(0)
    expect(search.page.locator(".judge")).to_have_count(0)
    expect(search.tiles.first.locator("mark").first).to_be_visible()
    search.page.get_by_role("button", name="Show more").click()
    expect(search.tiles).to_have_count(len(found))
    assert search.ids() == found
    search.page.reload()
    search.settle()
    expect(search.likeness).not_to_be_checked()
    assert search.ids() == found[:24]
    with search.page.expect_response("**/search"):
        search.words.uncheck()
    search.settle()
    expect(search.likeness).to_be_checked()
    assert search.ids() == search.found_by_text("purple triangle", keywords=None)


def test_the_filters_count_what_has_the_words_where_only_that_is_shown(open_search: OpenSearch) -> None:
    search = open_search("#q=triangle&words=only")
    search.settle()
    having = search.ask("v1/collections/shapes/count", {"keywords": "triangle"})["count"]
    counted = ["circle0", "square0", f"triangle{having}"]
    expect(search.group("labels").locator(".check")).to_have_text(counted)
    with search.page.expect_response("**/facets"):
        search.likeness.check()
    # Hits need have none of the words then.
    expect(search.group("labels").locator(".check")).to_have_text(["circle20", "square20", "triangle20"])


@pytest.mark.slow
def test_words_alone_beside_an_example_rank_by_both(open_search: OpenSearch) -> None:
    search = open_search("#q=purple&words=only")
    search.settle()
    liked = search.mark(0, "More like this")
    assert search.ids() == search.found(keywords="purple", like=[liked]) != search.found(like=[liked])


def test_words_alone_that_no_image_has_are_told_with_a_way_on(open_search: OpenSearch) -> None:
    search = open_search('#q=giraffe&words=only&filter={"field":"labels","eq":"circle"}')
    expect(search.notice).to_contain_text("No image has these words")
    expect(search.notice).to_contain_text("an image that passes the filters")
    expect(search.answer).to_contain_text("0 images")
    with search.page.expect_response("**/search"):
        search.notice.get_by_role("button", name="Match by likeness").click()
    search.settle()
    expect(search.words).to_be_checked()
    assert search.ids() == search.found_by_text("giraffe", filter={"field": "labels", "eq": "circle"})


@pytest.mark.slow
def test_more_images_with_words_than_are_counted(open_search: OpenSearch) -> None:
    search = open_search()
    search.settle()

    def answer(route: Route) -> None:
        page = route.fetch().json()
        route.fulfill(json={**page, "count": None})

    search.page.route("**/search", answer, times=1)
    search.likeness.uncheck()
    search.search("circle")
    expect(search.answer).to_contain_text("20 of over 10,000 images with the words")

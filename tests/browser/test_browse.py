"""The page without a query: everything or what passes, groups, ranges, values, marks, and broken links."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import update

from app.application import create_app
from app.engine import open_engine
from index.catalogue.tables import GenerationRow
from tests.browser.conftest import OpenSearch, Sites, Watch, step
from tests.browser.search_page import PAGE_SIZE, expect
from tests.browser.service import running

pytestmark = pytest.mark.browser

CIRCLES = {"field": "labels", "eq": "circle"}


def test_a_collection_is_looked_around_in_before_anything_is_asked(open_search: OpenSearch) -> None:
    search = open_search()
    step("the whole collection is shown in pages, without scores and thumbs")
    search.settle()
    everything = search.listed()
    assert search.ids() == everything[:PAGE_SIZE]
    expect(search.answer).to_contain_text("24 of 60 images")
    expect(search.page.locator(".hit-score")).to_have_count(0)
    expect(search.page.locator(".judge")).to_have_count(0)
    search.more.click()
    expect(search.tiles).to_have_count(2 * PAGE_SIZE)
    assert search.ids() == everything[: 2 * PAGE_SIZE]
    step("a filter alone shows what passes, and a text then searches in it")
    search.filter_circles()
    expect(search.page.locator(".landing")).to_have_count(0)
    assert search.ids() == search.listed(filter=CIRCLES)
    search.search("red")
    assert search.ids() == search.found_by_text("red", filter=CIRCLES)
    step("more like this begins a search from the list")
    search.go("#collection=shapes")
    liked = search.mark(3, "More like this")
    assert search.ids() == search.found(like=[liked])
    search.page.go_back()
    expect(search.answer).to_contain_text("24 of 60 images")
    assert search.open_hit(2) == everything[2]
    expect(search.dialog.locator(".details")).to_contain_text(everything[2])
    expect(search.dialog.locator(".dialog-score")).to_have_count(0)


@pytest.mark.parametrize("query", ["", pytest.param("&q=circle", marks=pytest.mark.slow)])
def test_images_are_grouped_by_a_field_and_a_group_opened(open_search: OpenSearch, query: str) -> None:
    search = open_search(f"#collection=shapes{query}").settle()
    by, others = search.page.get_by_label("Group by"), search.page.locator(".hit-others")
    with search.answered():
        by.select_option("group")
    asked = {"text": "circle", "keywords": "circle"} if query else {}
    answer = search.ask("v1/collections/shapes/search", {**asked, "limit": 24, "group_by": "group"})
    assert search.ids() == [hit["id"] for hit in answer["hits"]]
    larger = [hit for hit in answer["hits"] if hit["group_size"] > 1]
    assert others.all_inner_texts() == [f"{hit['group_size'] - 1} more of {hit['group']}" for hit in larger]
    assert search.link()["group"] == ["group"]
    with search.answered():
        others.first.click()
    expect(search.tiles).to_have_count(larger[0]["group_size"])
    expect(search.chips).to_have_text([f"group: {larger[0]['group']}"])
    expect(by).to_have_value("")


def test_a_broken_link_is_told_and_not_searched(open_search: OpenSearch) -> None:
    asked: list[str] = []
    search = open_search().settle()
    search.page.on("request", lambda request: asked.append(request.url))
    for broken, told in {
        "filter={bad": "the filter in it",
        "filter=[1]": "the filter in it",
        "filter=": "the filter in it",
        "words=some": "the switch for exact words in it",
        "group=&by=picture": "the mark of an image and the field to group by in it",
    }.items():
        step(broken)
        asked.clear()
        search.page.goto(f"{search.service}/#collection=shapes&q=circle&{broken}")
        expect(search.notice).to_contain_text("A part of this link is broken")
        expect(search.notice).to_contain_text(told)
        expect(search.tiles).to_have_count(0)
        assert not [url for url in asked if url.endswith("/search")]
        search.press("Go on without it")
        assert search.ids() == search.found_by_text("circle")
        assert "filter" not in search.link()


@pytest.fixture
def unfinished(sites: Sites, tmp_path: Path) -> Iterator[str]:
    """The same collections from a service that hides fields, in whose home no generation is active."""
    shutil.copytree(sites.settings.home, tmp_path / "home")
    changed = {"home": tmp_path / "home", "hidden_fields": ("colour", "labels", "group")}
    settings = sites.settings.model_copy(update=changed)
    engine = open_engine(settings)
    with engine.home.catalogue.write() as session:
        session.execute(update(GenerationRow).values(state="building"))
    engine.close()
    with running(create_app(settings)) as service:
        yield service


@pytest.mark.slow
def test_a_collection_without_an_active_generation_is_looked_around_in_without_hidden_fields(
    open_search: OpenSearch, unfinished: str, watch: Watch
) -> None:
    watch.allow("409")
    search = open_search("?collection=shapes", site=unfinished).settle()
    step("everything, and what passes a filter")
    expect(search.page.locator(".landing")).to_contain_text("cannot be searched by likeness yet")
    expect(search.answer).to_contain_text("24 of 60 images")
    search.open_filters()
    search.group("round").get_by_label("yes").check()
    expect(search.answer).to_contain_text("20 images")
    expect(search.page.locator(".hit-mark")).to_have_count(0)
    step("fields that a setting hides are not shown")
    expect(search.group("taken")).to_have_count(1)
    for name in ("colour", "labels", "group"):
        expect(search.group(name)).to_have_count(0)
    expect(search.page.locator(".hit .tag")).to_have_count(0)
    options = search.page.get_by_label("Group by").locator("option")
    assert {"colour", "labels", "group"}.isdisjoint(options.all_inner_texts())
    search.open_hit()
    details = search.dialog.locator(".details dt")
    expect(details.filter(has_text="size").first).to_be_visible()
    expect(details.filter(has_text=re.compile("^(colour|group)$"))).to_have_count(0)
    expect(search.dialog.locator(".tag")).to_have_count(0)
    search.keys("Escape")
    step("what has the words")
    search.likeness.uncheck()
    search.search("middle")
    expect(search.answer).to_contain_text("images with the words")
    expect(search.tiles.first.locator("mark")).to_have_text(["middle"])
    step("likeness is refused")
    search.likeness.check()
    expect(search.notice).to_contain_text("The collection cannot be searched yet")

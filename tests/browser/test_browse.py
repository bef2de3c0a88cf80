"""The page without a query: everything or what passes, groups, ranges, values, marks, and broken links."""

import json
import re
import shutil
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from app.application import create_app
from app.engine import open_engine
from app.settings import Settings
from index.catalogue.tables import GenerationRow
from tests.access import OPEN
from tests.browser.conftest import OpenSearch, Sites, Step, Watch
from tests.browser.search_page import PAGE_SIZE, expect
from tests.browser.service import running

pytestmark = pytest.mark.browser

CIRCLES = {"field": "labels", "eq": "circle"}


def test_a_collection_is_looked_around_in_before_anything_is_asked(
    open_search: OpenSearch, step: Step
) -> None:
    search = open_search()
    step("the whole collection is shown in pages, without scores and thumbs")
    search.settle()
    everything = search.listed()
    assert search.ids() == everything[:PAGE_SIZE]
    expect(search.answer).to_contain_text("24 of 60 images")
    expect(search.page.locator(".hit-score")).to_have_count(0)
    expect(search.page.locator(".judge")).to_have_count(0)
    for shown in (2 * PAGE_SIZE, 60):
        search.more.click()
        expect(search.tiles).to_have_count(shown)
    expect(search.more).to_have_count(0)
    assert search.ids() == everything
    expect(search.answer).to_contain_text("60 images")
    step("a filter alone shows what passes, and a text then searches in it")
    search.open_filters()
    search.group("labels").get_by_label("circle").check()
    expect(search.answer).to_contain_text("20 images")
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


def test_counts_follow_the_other_filters(open_search: OpenSearch, step: Step) -> None:
    search = open_search('#filter={"field":"colour","eq":"red"}')
    search.settle()
    search.open_filters()
    step("of its own field a filter leaves the others to choose")
    expect(search.checks("colour")).to_have_text(["blue12", "green12", "orange12", "purple12", "red12"])
    expect(search.checks("labels")).to_have_text(["circle4", "square4", "triangle4"])
    expect(search.checks("round")).to_have_text(["no8", "yes4"])
    expect(search.checks("group").first).to_have_text("train patient 12")
    search.group("size").get_by_label("size to").fill("25")
    expect(search.checks("labels")).to_have_text(["circle1", "square0", "triangle1"])
    step("part of a date in a link stands for the whole month")
    search.go('#filter={"field":"taken","gte":"2021-02","lte":"2021-02"}')
    assert {int(name.removeprefix("shape-")) % 6 for name in search.ids()} == {1}
    search.open_filters()
    expect(search.group("taken").get_by_label("taken from")).to_have_value("2021-02-01")
    expect(search.group("taken").get_by_label("taken to")).to_have_value("2021-02-28")


@pytest.mark.slow
def test_days_and_values_among_many_are_chosen(open_search: OpenSearch, step: Step) -> None:
    search = open_search()
    search.settle()
    search.open_filters()
    step("dates are chosen by two days")
    first, last = (search.group("taken").get_by_label(f"taken {end}") for end in ("from", "to"))
    expect(first).to_have_attribute("type", "date")
    expect(first).to_have_attribute("min", "2021-01-01")
    first.fill("2021-02-01")
    last.fill("2021-03-31")
    days = {f"shape-{n}": date(2021, 1 + n % 6, 1 + n % 28) for n in range(60) if n != 4}
    expected = [name for name, day in days.items() if date(2021, 2, 1) <= day <= date(2021, 3, 31)]
    expect(search.answer).to_contain_text(f"{len(expected)} images")
    assert search.ids() == expected
    expect(search.chips).to_have_text(["taken: 2021-02-01 to 2021-03-31"])
    search.page.reload()
    search.settle()
    assert search.ids() == expected
    step("numbers that write days are chosen as days")
    search.go("#collection=shapes")
    search.open_filters()
    expect(search.group("acquired").get_by_label("acquired from")).to_have_attribute("max", "2021-01-28")
    search.group("acquired").get_by_label("acquired from").fill("2021-01-27")
    expect(search.answer).to_contain_text("4 images")
    wanted = {"field": "acquired", "gte": 20210127}
    assert json.loads(search.link()["filter"][0]) == wanted
    assert search.ids() == search.listed(filter=wanted)
    step("a value among many is found by a part of it")
    search.go("#collection=shapes")
    search.open_filters()
    study = search.group("study")
    part = study.get_by_label("Find a value of study")
    expect(search.checks("study")).to_have_count(0)
    part.fill("s01")
    expect(search.checks("study")).to_have_text([f"S01{digit}1" for digit in range(10)])
    study.get_by_label("S017").check()
    expect(search.answer).to_contain_text("1 image")
    assert search.ids() == ["shape-17"]
    part.fill("03")
    study.get_by_label("S003").check()
    expect(search.answer).to_contain_text("2 images")
    assert search.ids() == ["shape-3", "shape-17"]
    part.fill("nothing")
    expect(study).to_contain_text("No value has this in it.")


@pytest.mark.parametrize("query", ["", pytest.param("&q=circle", marks=pytest.mark.slow)])
def test_images_are_grouped_by_a_field_and_a_group_opened(open_search: OpenSearch, query: str) -> None:
    search = open_search(f"#collection=shapes{query}")
    search.settle()
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


@pytest.mark.slow
def test_words_are_marked_in_the_sentence_that_has_them(open_search: OpenSearch, step: Step) -> None:
    search = open_search("#q=middle+circle&words=exact")
    search.settle()
    step("a sentence of the texts is shown once")
    tile = search.page.locator(".hit", has=search.page.locator("mark", has_text="middle")).first
    expect(tile.locator(".hit-text")).to_have_text(["there is a circle in the middle"])
    expect(tile.locator("mark")).to_have_text(["circle", "middle"])
    step("a sentence of the report")
    search.go("#q=picture+shows&words=exact")
    report = search.page.locator('.hit[data-id="shape-0"]')
    expect(report.locator(".hit-text")).to_have_text("The picture shows a circle.")
    expect(report.locator("mark")).to_have_text(["picture", "shows"])
    step("words behind characters of two units")

    def answer(route: Any) -> None:
        page = route.fetch().json()
        page["hits"][0]["matched"] = {"text": "😀 a red 😀 circle", "spans": [[4, 7], [10, 16]]}
        route.fulfill(json=page)

    search.page.route("**/search", answer, times=1)
    search.search("red circle")
    expect(search.tiles.first.locator(".hit-text")).to_have_text("😀 a red 😀 circle")
    expect(search.tiles.first.locator("mark")).to_have_text(["red", "circle"])


def test_a_broken_link_is_told_and_not_searched(open_search: OpenSearch, step: Step) -> None:
    asked: list[str] = []
    search = open_search()
    search.settle()
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
def hiding(sites: Sites) -> Iterator[str]:
    """The same collections from a service that hides fields."""
    home = sites.host_folder.parent / "home"
    hidden = ("colour", "labels", "group")
    with running(
        create_app(Settings(home=home, threads=1, device="cpu", hidden_fields=hidden, **OPEN))
    ) as service:
        yield service


@pytest.mark.slow
def test_fields_that_a_setting_hides_are_not_shown(
    open_search: OpenSearch, hiding: str, watch: Watch
) -> None:
    watch.allow(hiding)
    search = open_search("#collection=shapes&q=circle&words=off", site=hiding)
    search.settle()
    search.open_filters()
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


@pytest.fixture
def unfinished(sites: Sites, tmp_path: Path) -> Iterator[str]:
    """The same collections from a service in whose home no generation is active."""
    shutil.copytree(sites.host_folder.parent / "home", tmp_path / "home")
    settings = Settings(home=tmp_path / "home", threads=1, device="cpu", **OPEN)
    engine = open_engine(settings)
    with engine.home.catalogue.write() as session:
        session.execute(update(GenerationRow).values(state="building"))
    engine.close()
    with running(create_app(settings)) as service:
        yield service


@pytest.mark.slow
def test_a_collection_without_an_active_generation_is_looked_around_in(
    open_search: OpenSearch, unfinished: str, watch: Watch, step: Step
) -> None:
    watch.allow(unfinished)
    watch.allow("409")
    search = open_search("?collection=shapes", site=unfinished)
    search.settle()
    step("everything, and what passes a filter")
    expect(search.page.locator(".landing")).to_contain_text("cannot be searched by likeness yet")
    expect(search.answer).to_contain_text("24 of 60 images")
    search.open_filters()
    search.group("labels").get_by_label("circle").check()
    expect(search.answer).to_contain_text("20 images")
    expect(search.page.locator(".hit-mark")).to_have_count(0)
    step("what has the words")
    search.likeness.uncheck()
    search.search("middle")
    expect(search.answer).to_contain_text("images with the words")
    expect(search.tiles.first.locator("mark")).to_have_text(["middle"])
    step("likeness is refused")
    search.likeness.check()
    expect(search.notice).to_contain_text("The collection cannot be searched yet")

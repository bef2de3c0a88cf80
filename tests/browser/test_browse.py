"""The page without a query: everything or what passes, groups, ranges, values, marks, and broken links."""

import json
import re
import shutil
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from sqlalchemy import update

from app.application import create_app
from app.engine import open_engine
from app.settings import Settings
from index.catalogue.tables import GenerationRow
from tests.access import OPEN
from tests.browser.conftest import OpenSearch, Sites, Watch
from tests.browser.search_page import PAGE_SIZE, SearchPage, expect
from tests.browser.service import running

if TYPE_CHECKING:
    from playwright.sync_api import FilePayload

pytestmark = pytest.mark.browser


def listed(search: SearchPage, **query: Any) -> list[str]:
    """The ids that the service lists without a query."""
    answer = search.ask("v1/collections/shapes/search", {"limit": 100, **query})
    return [hit["id"] for hit in answer["hits"]]


def test_the_whole_collection_is_shown_in_pages_before_anything_is_asked(open_search: OpenSearch) -> None:
    search = open_search()
    search.settle()
    everything = listed(search)
    assert search.ids() == everything[:PAGE_SIZE]
    expect(search.answer).to_contain_text("24 of 60 images")
    expect(search.page.locator(".hit-score")).to_have_count(0)
    expect(search.page.locator(".judge")).to_have_count(0)
    more = search.page.get_by_role("button", name="Show more")
    more.click()
    expect(search.tiles).to_have_count(2 * PAGE_SIZE)
    more.click()
    expect(search.tiles).to_have_count(60)
    expect(more).to_have_count(0)
    assert search.ids() == everything
    expect(search.answer).to_contain_text("60 images")


def test_a_filter_alone_shows_what_passes(open_search: OpenSearch) -> None:
    search = open_search()
    search.settle()
    search.page.get_by_role("button", name="Filters").click()
    search.group("labels").get_by_label("circle").check()
    expect(search.answer).to_contain_text("20 images")
    expect(search.page.locator(".landing")).to_have_count(0)
    assert search.ids() == listed(search, filter={"field": "labels", "eq": "circle"})
    search.search("red")
    assert search.ids() == search.found_by_text("red", filter={"field": "labels", "eq": "circle"})


@pytest.mark.slow
def test_more_like_this_begins_a_search_from_the_list(open_search: OpenSearch) -> None:
    search = open_search()
    search.settle()
    liked = search.mark(3, "More like this")
    assert search.ids() == search.found(like=[liked])
    search.page.go_back()
    expect(search.answer).to_contain_text("24 of 60 images")
    search.tiles.nth(2).locator(".hit-open").click()
    expect(search.dialog.locator(".details")).to_contain_text(search.ids()[2])
    expect(search.dialog.locator(".dialog-score")).to_have_count(0)


def test_counts_follow_the_other_filters(open_search: OpenSearch) -> None:
    search = open_search('#filter={"field":"colour","eq":"red"}')
    search.settle()
    search.page.get_by_role("button", name="Filters").click()
    # Of its own field a filter leaves the others to choose.
    expect(search.group("colour").locator(".check")).to_have_text(
        ["blue12", "green12", "orange12", "purple12", "red12"]
    )
    expect(search.group("labels").locator(".check")).to_have_text(["circle4", "square4", "triangle4"])
    expect(search.group("round").locator(".check")).to_have_text(["no8", "yes4"])
    expect(search.group("group").locator(".check").first).to_have_text("train patient 12")
    search.group("size").get_by_label("size to").fill("25")
    expect(search.group("labels").locator(".check")).to_have_text(["circle1", "square0", "triangle1"])


@pytest.mark.slow
def test_dates_are_chosen_by_two_days(open_search: OpenSearch) -> None:
    search = open_search()
    search.settle()
    search.page.get_by_role("button", name="Filters").click()
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


@pytest.mark.slow
def test_numbers_that_write_days_are_chosen_as_days(open_search: OpenSearch) -> None:
    search = open_search()
    search.settle()
    search.page.get_by_role("button", name="Filters").click()
    expect(search.group("acquired").get_by_label("acquired from")).to_have_attribute("max", "2021-01-28")
    search.group("acquired").get_by_label("acquired from").fill("2021-01-27")
    expect(search.answer).to_contain_text("4 images")
    wanted = {"field": "acquired", "gte": 20210127}
    assert json.loads(search.link()["filter"][0]) == wanted
    assert search.ids() == listed(search, filter=wanted)


def test_part_of_a_date_in_a_link_stands_for_the_whole_month(open_search: OpenSearch) -> None:
    search = open_search('#filter={"field":"taken","gte":"2021-02","lte":"2021-02"}')
    search.settle()
    assert {int(name.removeprefix("shape-")) % 6 for name in search.ids()} == {1}
    search.page.get_by_role("button", name="Filters").click()
    expect(search.group("taken").get_by_label("taken from")).to_have_value("2021-02-01")
    expect(search.group("taken").get_by_label("taken to")).to_have_value("2021-02-28")


@pytest.mark.slow
def test_a_value_among_many_is_found_by_a_part_of_it(open_search: OpenSearch) -> None:
    search = open_search()
    search.settle()
    search.page.get_by_role("button", name="Filters").click()
    study = search.group("study")
    expect(study.locator(".check")).to_have_count(0)
    study.get_by_label("Find a value of study").fill("s01")
    expect(study.locator(".check")).to_have_text([f"S01{digit}1" for digit in range(10)])
    study.get_by_label("S017").check()
    expect(search.answer).to_contain_text("1 image")
    assert search.ids() == ["shape-17"]
    study.get_by_label("Find a value of study").fill("03")
    study.get_by_label("S003").check()
    expect(search.answer).to_contain_text("2 images")
    assert search.ids() == ["shape-3", "shape-17"]
    study.get_by_label("Find a value of study").fill("nothing")
    expect(study).to_contain_text("No value has this in it.")


@pytest.mark.parametrize("query", ["", pytest.param("&q=circle", marks=pytest.mark.slow)])
def test_images_are_grouped_by_a_field_and_a_group_opened(open_search: OpenSearch, query: str) -> None:
    search = open_search(f"#collection=shapes{query}")
    search.settle()
    with search.page.expect_response("**/search"):
        search.page.get_by_label("Group by").select_option("group")
    search.settle()
    asked = {"text": "circle", "keywords": "circle"} if query else {}
    answer = search.ask("v1/collections/shapes/search", {**asked, "limit": 24, "group_by": "group"})
    assert search.ids() == [hit["id"] for hit in answer["hits"]]
    assert search.page.locator(".hit-others").all_inner_texts() == [
        f"{hit['group_size'] - 1} more of {hit['group']}" for hit in answer["hits"] if hit["group_size"] > 1
    ]
    assert search.link()["group"] == ["group"]
    first = next(hit for hit in answer["hits"] if hit["group_size"] > 1)
    with search.page.expect_response("**/search"):
        search.page.locator(".hit-others").first.click()
    search.settle()
    expect(search.tiles).to_have_count(first["group_size"])
    expect(search.chips).to_have_text([f"group: {first['group']}"])
    expect(search.page.get_by_label("Group by")).to_have_value("")


@pytest.mark.slow
def test_the_sentence_with_the_words_is_shown_once_with_marks(open_search: OpenSearch) -> None:
    search = open_search("#q=middle+circle&words=exact")
    search.settle()
    tile = search.page.locator(".hit", has=search.page.locator("mark", has_text="middle")).first
    expect(tile.locator(".hit-text")).to_have_text("there is a circle in the middle")
    expect(tile.locator("mark")).to_have_text(["circle", "middle"])
    expect(tile.locator(".hit-text")).to_have_count(1)
    search = open_search("#q=picture+shows&words=exact")
    search.settle()
    report = search.page.locator('.hit[data-id="shape-0"]')
    expect(report.locator(".hit-text")).to_have_text("The picture shows a circle.")
    expect(report.locator("mark")).to_have_text(["picture", "shows"])


@pytest.mark.slow
def test_words_are_marked_behind_characters_of_two_units(open_search: OpenSearch) -> None:
    search = open_search()
    search.settle()

    def answer(route: Any) -> None:
        page = route.fetch().json()
        page["hits"][0]["matched"] = {"text": "😀 a red 😀 circle", "spans": [[4, 7], [10, 16]]}
        route.fulfill(json=page)

    search.page.route("**/search", answer, times=1)
    search.search("red circle")
    expect(search.tiles.first.locator(".hit-text")).to_have_text("😀 a red 😀 circle")
    expect(search.tiles.first.locator("mark")).to_have_text(["red", "circle"])


@pytest.mark.slow
def test_an_image_and_words_make_one_query(open_search: OpenSearch, sites: Sites) -> None:
    search = open_search()
    search.settle()
    picture = (sites.host_folder.parent / "data" / "shapes" / "images" / "7.png").read_bytes()
    search.drop(picture)
    expect(search.tiles.first).to_have_attribute("data-id", "shape-7")
    search.field.fill("a blue triangle")
    with search.page.expect_response("**/search"):
        search.field.press("Enter")
    search.settle()
    expect(search.page.locator(".field-chip")).to_contain_text("query.png")
    file: FilePayload = {"name": "7.png", "mimeType": "image/png", "buffer": picture}
    asked = {"text": "a blue triangle", "keywords": "a blue triangle", "limit": PAGE_SIZE}
    query = json.dumps(asked)
    address = f"{search.service}/v1/collections/shapes/search"
    answer = search.page.request.post(address, multipart={"query": query, "image": file})
    assert search.ids() == [hit["id"] for hit in answer.json()["hits"]]
    search.page.get_by_role("button", name="Remove query.png").click()
    search.expect_link("by")
    search.settle()
    assert search.ids() == search.found_by_text("a blue triangle")


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        ("filter={bad", "the filter in it"),
        ("filter=[1]", "the filter in it"),
        pytest.param("filter=", "the filter in it", marks=pytest.mark.slow),
        pytest.param("words=some", "the switch for exact words in it", marks=pytest.mark.slow),
        ("group=&by=picture", "the mark of an image and the field to group by in it"),
    ],
)
def test_a_broken_link_is_told_and_not_searched(open_search: OpenSearch, broken: str, told: str) -> None:
    asked: list[str] = []
    search = open_search(
        f"#collection=shapes&q=circle&{broken}",
        before=lambda page: page.on("request", lambda request: asked.append(request.url)),
    )
    expect(search.notice).to_contain_text("A part of this link is broken")
    expect(search.notice).to_contain_text(told)
    expect(search.tiles).to_have_count(0)
    assert not [url for url in asked if url.endswith("/search")]
    search.page.get_by_role("button", name="Go on without it").click()
    search.settle()
    assert search.ids() == search.found_by_text("circle")
    assert "filter" not in search.link()


@pytest.mark.slow
def test_a_filter_that_the_service_refuses_is_told_and_not_searched(
    open_search: OpenSearch, watch: Watch
) -> None:
    watch.allow("Failed to load resource")
    for wrong in ({"field": "colour", "equals": "red"}, {}, {"field": "colour", "any_of": "red"}):
        search = open_search(f"#collection=shapes&filter={quote(json.dumps(wrong))}")
        expect(search.notice).to_contain_text("422")
        expect(search.tiles).to_have_count(0)


@pytest.fixture
def hiding(sites: Sites) -> Iterator[str]:
    """The same collections from a service that hides fields."""
    home = sites.host_folder.parent / "home"
    settings = Settings(
        home=home, threads=1, device="cpu", hidden_fields=("colour", "labels", "group"), **OPEN
    )
    with running(create_app(settings)) as service:
        yield service


@pytest.mark.slow
def test_fields_that_a_setting_hides_are_not_shown(
    open_search: OpenSearch, hiding: str, watch: Watch
) -> None:
    watch.allow(hiding)
    search = open_search("#collection=shapes&q=circle&words=off", site=hiding)
    search.settle()
    search.page.get_by_role("button", name="Filters").click()
    expect(search.group("taken")).to_have_count(1)
    for name in ("colour", "labels", "group"):
        expect(search.group(name)).to_have_count(0)
    expect(search.page.locator(".hit .tag")).to_have_count(0)
    options = search.page.get_by_label("Group by").locator("option")
    assert {"colour", "labels", "group"}.isdisjoint(options.all_inner_texts())
    search.tiles.first.locator(".hit-open").click()
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
    open_search: OpenSearch, unfinished: str, watch: Watch
) -> None:
    watch.allow(unfinished)
    watch.allow("409")
    search = open_search("?collection=shapes", site=unfinished)
    search.settle()
    expect(search.page.locator(".landing")).to_contain_text("cannot be searched by likeness yet")
    expect(search.answer).to_contain_text("24 of 60 images")
    search.page.get_by_role("button", name="Filters").click()
    search.group("labels").get_by_label("circle").check()
    expect(search.answer).to_contain_text("20 images")
    expect(search.page.locator(".hit-mark")).to_have_count(0)
    search.likeness.uncheck()
    search.search("middle")
    expect(search.answer).to_contain_text("images with the words")
    expect(search.tiles.first.locator("mark")).to_have_text(["middle"])
    search.likeness.check()
    expect(search.notice).to_contain_text("The collection cannot be searched yet")


@pytest.mark.slow
@pytest.mark.parametrize("query", ["", "&q=a+red+circle&words=exact&group=group"])
def test_lists_and_groups_fit_a_phone(open_search: OpenSearch, query: str) -> None:
    phone = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}
    search = open_search(f"#collection=shapes{query}", **phone)
    search.settle()
    assert not search.scrolls_sideways()
    search.page.get_by_role("button", name="Filters").tap()
    search.group("study").get_by_label("Find a value of study").fill("S0")
    expect(search.group("study").locator(".check").first).to_be_visible()
    assert not search.scrolls_sideways()

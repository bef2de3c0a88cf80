"""The page without a query, and with filters: what passes, groups, ranges, values, findings, broken links."""

import json
import re
import shutil
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from urllib.parse import quote

import pytest
from sqlalchemy import update

from app.application import create_app
from app.engine import open_engine
from index.catalogue.tables import GenerationRow
from tests.browser.conftest import OpenSearch, Sites, Watch, step
from tests.browser.search_page import PAGE_SIZE, SearchPage, expect, serious
from tests.browser.service import running

pytestmark = pytest.mark.browser

CIRCLES = {"field": "labels", "eq": "circle"}
ABSENT = {"finding": "pleural effusion", "state": "absent"}


def _address(filter: object) -> str:
    return f"#collection=shapes&filter={quote(json.dumps(filter))}"


def _filter_in(search: SearchPage) -> object:
    values = search.link().get("filter")
    return json.loads(values[0]) if values else None


@pytest.mark.slow
def test_a_collection_is_looked_around_in_and_a_broken_link_told(open_search: OpenSearch) -> None:
    search = open_search().settle()
    step("the whole collection is shown in pages, without scores and thumbs")
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
    assert search.ids() == search.found(text="red", filter=CIRCLES)
    step("more like this begins a search from the list")
    search.go("#collection=shapes")
    liked = search.mark(3, "More like this")
    assert search.ids() == search.found(like=[liked])
    search.page.go_back()
    expect(search.answer).to_contain_text("24 of 60 images")
    assert search.open_hit(2) == everything[2]
    expect(search.dialog.locator(".details")).to_contain_text(everything[2])
    expect(search.dialog.locator(".dialog-score")).to_have_count(0)
    step("a broken link is reported, and not searched")
    requests: list[str] = []
    search.page.on("request", lambda request: requests.append(request.url))
    for broken, expected in {
        "filter={bad": "the filter in it",
        "filter=[1]": "the filter in it",
        "filter=": "the filter in it",
        "words=some": "the switch for exact words in it",
        "sort=oldest": "the order in it",
        "group=&by=picture": "the mark of an image and the field to group by in it",
    }.items():
        step(broken)
        requests.clear()
        search.page.goto(f"{search.service}/#collection=shapes&q=circle&{broken}")
        expect(search.notice).to_contain_text("A part of this link is broken")
        expect(search.notice).to_contain_text(expected)
        expect(search.tiles).to_have_count(0)
        assert not [url for url in requests if url.endswith("/search")]
        search.press("Continue without it")
        assert search.ids() == search.found(text="circle")
        assert "filter" not in search.link()


@pytest.mark.parametrize("query", ["", pytest.param("&q=circle", marks=pytest.mark.slow)])
def test_images_are_grouped_by_a_field_and_a_group_opened(open_search: OpenSearch, query: str) -> None:
    search = open_search(f"#collection=shapes{query}").settle()
    by, others = search.page.get_by_label("Group by"), search.page.locator(".hit-others")
    with search.answered():
        by.select_option("group")
    requested = {"text": "circle", "keywords": "circle"} if query else {}
    answer = search.ask("v1/collections/shapes/search", {**requested, "limit": 24, "group_by": "group"})
    assert search.ids() == [hit["id"] for hit in answer["hits"]]
    larger = [hit for hit in answer["hits"] if hit["group_size"] > 1]
    assert others.all_inner_texts() == [f"{hit['group_size'] - 1} more of {hit['group']}" for hit in larger]
    assert search.link()["group"] == ["group"]
    with search.answered():
        others.first.click()
    expect(search.tiles).to_have_count(larger[0]["group_size"])
    expect(search.chips).to_have_text([f"group: {larger[0]['group']}"])
    expect(by).to_have_value("")


def test_a_list_is_sorted_and_a_ranking_is_not(open_search: OpenSearch) -> None:
    search = open_search("#collection=shapes").settle()
    by = search.page.get_by_label("Sort by")
    with search.answered():
        by.select_option("newest")
    expected = search.listed(sort="newest")
    assert search.ids() == expected[:PAGE_SIZE] != search.listed()[:PAGE_SIZE]
    assert search.link()["sort"] == ["newest"]
    search.more.click()
    expect(search.tiles).to_have_count(2 * PAGE_SIZE)
    assert search.ids() == expected[: 2 * PAGE_SIZE]
    search.filter_circles()
    assert search.ids() == search.listed(filter=CIRCLES, sort="newest")
    search.search("red")
    expect(by).to_be_hidden()
    assert search.ids() == search.found(text="red", filter=CIRCLES)


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
    search.likeness.uncheck()
    search.search("middle")
    expect(search.answer).to_contain_text("images with the words")
    expect(search.tiles.first.locator("mark")).to_have_text(["middle"])
    search.likeness.check()
    expect(search.notice).to_contain_text("The collection cannot be searched yet")


@pytest.mark.slow
def test_choices_in_the_panel_narrow_the_hits(open_search: OpenSearch) -> None:
    search = open_search("#q=shape").settle()
    search.open_filters()
    step("the panel has the fields, with values and counts")
    expect(search.checks("labels")).to_have_text(["circle20", "square20", "triangle20"])
    expect(search.checks("colour")).to_have_count(5)
    expect(search.checks("round")).to_have_text(["no40", "yes20"])
    expect(search.group("size").get_by_label("size from")).to_have_attribute("placeholder", "20")
    expect(search.group("size").get_by_label("size to")).to_have_attribute("placeholder", "79")
    expect(search.group("id")).to_have_count(0)
    step("choices narrow the hits and are kept in the link")
    search.group("labels").get_by_label("circle").check()
    expect(search.answer).to_contain_text("20 images")
    search.group("colour").get_by_label("red").check()
    expect(search.answer).to_contain_text("4 images")
    search.group("colour").get_by_label("blue").check()
    expect(search.answer).to_contain_text("8 images")
    expected = {"and": [{"field": "labels", "eq": "circle"}, {"field": "colour", "any_of": ["red", "blue"]}]}
    assert _filter_in(search) == expected
    assert search.ids() == search.found(text="shape", filter=expected)
    expect(search.chips).to_have_text(["labels: circle", "colour: red or blue"])
    expect(search.group("colour").get_by_label("blue")).to_be_focused()
    step("chips and a button take them back")
    search.button("Remove the filter labels: circle").click()
    expect(search.answer).to_contain_text("24 images")
    expect(search.group("labels").get_by_label("circle")).not_to_be_checked()
    search.panel.get_by_role("button", name="Clear all").click()
    expect(search.answer).to_contain_text("Best 24 images")
    expect(search.chips).to_have_count(0)
    assert _filter_in(search) is None
    step("a link sets filters, even those that the panel cannot edit")
    expected = {"and": [{"field": "colour", "eq": "green"}, {"not": {"field": "labels", "eq": "circle"}}]}
    search.go(f"#q=shape&filter={quote(json.dumps(expected))}")
    assert search.ids() == search.found(text="shape", filter=expected)
    expect(search.chips).to_have_text(["colour: green", "further conditions"])
    search.go('#filter={"field":"colour","eq":"red"}')
    search.open_filters()
    step("of its own field a filter leaves the others to choose")
    expect(search.checks("colour")).to_have_text(["blue12", "green12", "orange12", "purple12", "red12"])
    expect(search.checks("labels")).to_have_text(["circle4", "square4", "triangle4"])
    expect(search.checks("round")).to_have_text(["no8", "yes4"])
    expect(search.checks("group").first).to_have_text("train patient 12")
    search.group("size").get_by_label("size to").fill("25")
    expect(search.checks("labels")).to_have_text(["circle1", "square0", "triangle1"])
    step("part of a date in a link means the whole month")
    search.go('#filter={"field":"taken","gte":"2021-02","lte":"2021-02"}')
    assert {int(name.removeprefix("shape-")) % 6 for name in search.ids()} == {1}
    search.open_filters()
    expect(search.group("taken").get_by_label("taken from")).to_have_value("2021-02-01")
    expect(search.group("taken").get_by_label("taken to")).to_have_value("2021-02-28")


@pytest.mark.slow
def test_ranges_days_and_values_among_many_narrow_the_hits(open_search: OpenSearch) -> None:
    search = open_search("#q=shape").settle()
    search.open_filters()
    least = search.group("size").get_by_label("size from")
    step("a range of numbers and a choice of yes or no")
    least.fill("30")
    search.group("size").get_by_label("size to").fill("39")
    expect(search.answer).to_contain_text("10 images")
    search.group("round").get_by_label("yes").check()
    expect(search.chips).to_have_text(["size: 30 to 39", "round: yes"])
    expect(search.answer).to_contain_text("3 images")
    expect(least).to_have_value("30")
    step("where nothing is left, clearing is offered")
    least.fill("500")
    expect(search.notice).to_contain_text("No image passes the filters")
    search.button("Clear the filters").click()
    search.settle()
    expect(search.answer).to_contain_text("Best 24 images")
    search.go("#collection=shapes")
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
    search.reload()
    assert search.ids() == expected
    step("numbers that write days are chosen as days")
    search.go("#collection=shapes")
    search.open_filters()
    expect(search.group("acquired").get_by_label("acquired from")).to_have_attribute("max", "2021-01-28")
    search.group("acquired").get_by_label("acquired from").fill("2021-01-27")
    expect(search.answer).to_contain_text("4 images")
    requested = {"field": "acquired", "gte": 20210127}
    assert json.loads(search.link()["filter"][0]) == requested
    assert search.ids() == search.listed(filter=requested)
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
    expect(study).to_contain_text("No value contains this.")


@pytest.mark.slow
def test_findings_of_texts_are_shown_and_filtered_by(open_search: OpenSearch) -> None:
    search = open_search("#collection=shapes&image=shape-9", bypass_csp=True)
    step("a finding compared with an earlier examination says so")
    findings = ["nodule: present earlier examination", "mass: absent"]
    expect(search.dialog.locator(".finding")).to_have_text(findings)
    assert serious(search.page) == []
    step("a finding of an open image filters the search, and its tile names it")
    search.page.goto(f"{search.service}/#collection=shapes&image=shape-6")
    finding = search.dialog.get_by_role("button", name="pleural effusion: absent")
    with search.answered():
        finding.click()
    expect(search.dialog).not_to_be_visible()
    assert search.ids() == ["shape-6"]
    expect(search.chips).to_have_text(["pleural effusion: absent"])
    assert _filter_in(search) == ABSENT
    expect(search.page.locator(".hit-findings")).to_have_text(["pleural effusion: absent"])
    step("the state of a finding is chosen in the panel")
    search.go(_address({"and": [{"field": "labels", "eq": "circle"}, ABSENT]}))
    assert search.ids() == ["shape-6"]
    expect(search.chips).to_have_text(["labels: circle", "pleural effusion: absent"])
    search.open_filters()
    state = search.group("finding").get_by_label("pleural effusion")
    expect(state).to_have_value("absent")
    assert serious(search.page) == []
    state.select_option("present")
    expect(search.notice).to_contain_text("No image passes the filters")
    expect(search.chips).to_have_text(["labels: circle", "pleural effusion: present"])
    expect(state).to_be_focused()
    state.select_option("any")
    expect(search.answer).to_contain_text("20 images")
    expect(search.chips).to_have_text(["labels: circle"])
    expect(state).to_have_value("")
    expect(state.get_by_role("option")).to_have_text(["any", "present (0)", "uncertain (0)", "absent (1)"])
    step("what is no state is left to the service")
    search.go(_address({"not": ABSENT}))
    expect(search.answer).to_contain_text("24 of 59 images")
    expect(search.chips).to_have_text(["further conditions"])

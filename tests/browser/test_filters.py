"""Filters built from what the collection holds."""

import json
from urllib.parse import quote

import pytest

from tests.browser.conftest import OpenSearch
from tests.browser.search_page import SearchPage, expect

pytestmark = pytest.mark.browser


@pytest.fixture
def search(open_search: OpenSearch) -> SearchPage:
    """A search with the panel open."""
    search: SearchPage = open_search("#q=shape")
    search.settle()
    search.page.get_by_role("button", name="Filters").click()
    return search


def test_panel_has_the_fields_with_values_and_counts(search: SearchPage) -> None:
    expect(search.group("labels").locator(".check")).to_have_text(["circle20", "square20", "triangle20"])
    expect(search.group("colour").locator(".check")).to_have_count(5)
    expect(search.group("round").locator(".check")).to_have_text(["no40", "yes20"])
    expect(search.group("size").get_by_label("size from")).to_have_attribute("placeholder", "20")
    expect(search.group("size").get_by_label("size to")).to_have_attribute("placeholder", "79")
    expect(search.group("id")).to_have_count(0)


def test_choices_narrow_the_hits_and_are_kept_in_the_address(search: SearchPage) -> None:
    search.group("labels").get_by_label("circle").check()
    expect(search.answer).to_contain_text("20 images")
    search.group("colour").get_by_label("red").check()
    expect(search.answer).to_contain_text("4 images")
    search.group("colour").get_by_label("blue").check()
    expect(search.answer).to_contain_text("8 images")
    wanted = {"and": [{"field": "labels", "eq": "circle"}, {"field": "colour", "any_of": ["red", "blue"]}]}
    assert _filter_in(search) == wanted
    assert search.ids() == search.found_by_text("shape", filter=wanted)
    expect(search.chips).to_have_text(["labels: circle", "colour: red or blue"])
    expect(search.group("colour").get_by_label("blue")).to_be_focused()


@pytest.mark.slow
def test_number_range_and_boolean(search: SearchPage) -> None:
    search.group("size").get_by_label("size from").fill("30")
    search.group("size").get_by_label("size to").fill("39")
    expect(search.answer).to_contain_text("10 images")
    search.group("round").get_by_label("yes").check()
    expect(search.chips).to_have_text(["size: 30 to 39", "round: yes"])
    expect(search.answer).to_contain_text("3 images")
    expect(search.group("size").get_by_label("size from")).to_have_value("30")


@pytest.mark.slow
def test_chips_and_clear_all_take_filters_back(search: SearchPage) -> None:
    search.group("labels").get_by_label("circle").check()
    search.group("colour").get_by_label("red").check()
    expect(search.answer).to_contain_text("4 images")
    search.page.get_by_role("button", name="Remove the filter labels: circle").click()
    expect(search.answer).to_contain_text("12 images")
    expect(search.group("labels").get_by_label("circle")).not_to_be_checked()
    search.panel.get_by_role("button", name="Clear all").click()
    expect(search.answer).to_contain_text("Best 24 images")
    assert _filter_in(search) is None


@pytest.mark.slow
def test_filter_that_leaves_nothing_offers_to_clear_it(search: SearchPage) -> None:
    search.group("size").get_by_label("size from").fill("500")
    expect(search.notice).to_contain_text("No image passes the filters")
    search.page.get_by_role("button", name="Clear the filters").click()
    search.settle()
    expect(search.answer).to_contain_text("Best 24 images")


def test_address_sets_filters_even_those_that_the_panel_cannot_edit(open_search: OpenSearch) -> None:
    wanted = {"and": [{"field": "colour", "eq": "green"}, {"not": {"field": "labels", "eq": "circle"}}]}
    search = open_search(f"#q=shape&filter={quote(json.dumps(wanted))}")
    search.settle()
    assert search.ids() == search.found_by_text("shape", filter=wanted)
    expect(search.chips).to_have_text(["colour: green", "further conditions"])


@pytest.mark.slow
def test_another_collection_starts_without_filters(search: SearchPage) -> None:
    search.group("labels").get_by_label("circle").check()
    expect(search.answer).to_contain_text("20 images")
    search.page.get_by_label("Collection").select_option("tiles")
    expect(search.answer).to_contain_text("9 images")
    expect(search.chips).to_have_count(0)


def _filter_in(search: SearchPage) -> object:
    values = search.link().get("filter")
    return json.loads(values[0]) if values else None

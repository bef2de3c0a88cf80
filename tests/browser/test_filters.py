"""Filters built from what the collection holds, and from what texts say of findings."""

import json
from urllib.parse import quote

import pytest

from tests.browser.conftest import OpenSearch, Step
from tests.browser.search_page import SearchPage, expect, serious

pytestmark = pytest.mark.browser

ABSENT = {"finding": "pleural effusion", "state": "absent"}


def _address(filter: object) -> str:
    return f"#collection=shapes&filter={quote(json.dumps(filter))}"


def _filter_in(search: SearchPage) -> object:
    values = search.link().get("filter")
    return json.loads(values[0]) if values else None


def test_choices_in_the_panel_narrow_the_hits(open_search: OpenSearch, step: Step) -> None:
    search = open_search("#q=shape")
    search.settle()
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
    wanted = {"and": [{"field": "labels", "eq": "circle"}, {"field": "colour", "any_of": ["red", "blue"]}]}
    assert _filter_in(search) == wanted
    assert search.ids() == search.found_by_text("shape", filter=wanted)
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
    wanted = {"and": [{"field": "colour", "eq": "green"}, {"not": {"field": "labels", "eq": "circle"}}]}
    search.go(f"#q=shape&filter={quote(json.dumps(wanted))}")
    assert search.ids() == search.found_by_text("shape", filter=wanted)
    expect(search.chips).to_have_text(["colour: green", "further conditions"])


@pytest.mark.slow
def test_ranges_narrow_the_hits_until_nothing_is_left(open_search: OpenSearch, step: Step) -> None:
    search = open_search("#q=shape")
    search.settle()
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
    step("another collection starts without filters")
    search.group("labels").get_by_label("circle").check()
    expect(search.answer).to_contain_text("20 images")
    search.page.get_by_label("Collection").select_option("tiles")
    expect(search.answer).to_contain_text("9 images")
    expect(search.chips).to_have_count(0)


def test_findings_of_texts_are_shown_and_filtered_by(open_search: OpenSearch, step: Step) -> None:
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


@pytest.mark.slow
def test_the_reading_room_names_findings_in_german(open_search: OpenSearch) -> None:
    search = open_search("room", viewport={"width": 1440, "height": 900}, locale="de-DE")
    search.settle()
    search.button("Filter").click()
    search.group("finding").get_by_label("Rundherd").select_option("present")
    expect(search.tiles).to_have_count(1)
    search.tiles.first.get_by_role("button", name="Befund und Angaben").press("Enter")
    expect(search.dialog.locator(".finding").first).to_have_text("Rundherd: vorhanden frühere Untersuchung")

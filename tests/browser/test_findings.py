"""What texts say of findings: named in words at an open image, and filtered by."""

import json
from urllib.parse import quote

import pytest

from tests.browser.conftest import OpenSearch
from tests.browser.search_page import expect
from tests.browser.test_accessibility import serious

pytestmark = pytest.mark.browser

ABSENT = {"finding": "pleural effusion", "state": "absent"}


def test_a_finding_of_an_open_image_filters_the_search(open_search: OpenSearch) -> None:
    search = open_search("#collection=shapes&image=shape-6", bypass_csp=True)
    finding = search.dialog.get_by_role("button", name="pleural effusion: absent")
    expect(finding).to_be_visible()
    assert serious(search) == []
    with search.page.expect_response("**/search"):
        finding.click()
    search.settle()
    expect(search.dialog).not_to_be_visible()
    assert search.ids() == ["shape-6"]
    expect(search.chips).to_have_text(["pleural effusion: absent"])
    assert json.loads(search.link()["filter"][0]) == ABSENT


@pytest.mark.slow
def test_a_finding_compared_with_an_earlier_examination_says_so(open_search: OpenSearch) -> None:
    search = open_search("#collection=shapes&image=shape-9", bypass_csp=True)
    findings = search.dialog.locator(".finding")
    expect(findings).to_have_text(["nodule: present earlier examination", "mass: absent"])
    assert serious(search) == []


@pytest.mark.slow
def test_the_reading_room_says_so_in_german(open_search: OpenSearch) -> None:
    search = open_search("room", viewport={"width": 1440, "height": 900}, locale="de-DE")
    search.settle()
    search.page.get_by_role("button", name="Filter", exact=True).click()
    search.group("finding").get_by_label("Rundherd").select_option("present")
    expect(search.tiles).to_have_count(1)
    search.tiles.first.get_by_role("button", name="Befund und Angaben").press("Enter")
    expect(search.dialog.locator(".finding").first).to_have_text("Rundherd: vorhanden frühere Untersuchung")


@pytest.mark.slow
def test_the_state_of_a_finding_is_chosen_in_the_panel(open_search: OpenSearch) -> None:
    both = {"and": [{"field": "labels", "eq": "circle"}, ABSENT]}
    search = open_search(f"#collection=shapes&filter={quote(json.dumps(both))}", bypass_csp=True)
    search.settle()
    assert search.ids() == ["shape-6"]
    expect(search.chips).to_have_text(["labels: circle", "pleural effusion: absent"])
    search.page.get_by_role("button", name="Filters").click()
    state = search.group("finding").get_by_label("pleural effusion")
    expect(state).to_have_value("absent")
    assert serious(search) == []
    state.select_option("present")
    expect(search.notice).to_contain_text("No image passes the filters")
    expect(search.chips).to_have_text(["labels: circle", "pleural effusion: present"])
    expect(state).to_be_focused()
    state.select_option("any")
    expect(search.answer).to_contain_text("20 images")
    expect(search.chips).to_have_text(["labels: circle"])
    expect(state).to_have_value("")
    expect(state.get_by_role("option")).to_have_text(["any", "present (0)", "uncertain (0)", "absent (1)"])


@pytest.mark.slow
def test_a_tile_names_the_findings_of_its_texts(open_search: OpenSearch) -> None:
    search = open_search(f"#collection=shapes&filter={quote(json.dumps(ABSENT))}")
    search.settle()
    expect(search.page.locator(".hit-findings")).to_have_text(["pleural effusion: absent"])


def test_what_is_no_state_is_left_to_the_service(open_search: OpenSearch) -> None:
    not_absent = {"not": ABSENT}
    search = open_search(f"#collection=shapes&filter={quote(json.dumps(not_absent))}")
    search.settle()
    expect(search.answer).to_contain_text("24 of 59 images")
    expect(search.chips).to_have_text(["further conditions"])

"""Saved cases: from a tile into a list, from the case book onto the light table and into a file."""

import io
import json
import zipfile
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.browser.conftest import OpenSearch, Sites, Watch
from tests.browser.search_page import SearchPage, expect
from tests.browser.service import SHAPES
from tests.browser.test_accessibility import serious

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Route

pytestmark = pytest.mark.browser

CASES = f"v1/collections/{SHAPES}/cases"
DESK = {"viewport": {"width": 1440, "height": 900}}


@pytest.fixture
def no_cases(sites: Sites, open_search: OpenSearch) -> Iterator[None]:
    """Leaves the service without cases."""
    yield
    search = open_search()
    for one in search.ask(CASES)["lists"]:
        search.page.request.delete(f"{sites.service}/{CASES}/{one['id']}")


def save_dialog(search: SearchPage) -> "Locator":
    return search.page.locator("dialog.save-case")


def save(search: SearchPage, *, name: str | None = None, note: str = "") -> None:
    """Fill the open dialog, and wait until the case is kept."""
    dialog = save_dialog(search)
    button = dialog.get_by_role("button", name="Save case")
    expect(button).to_be_enabled()
    if name is not None:
        dialog.get_by_label("Name of the list").fill(name)
    dialog.get_by_label("Note").fill(note)
    button.click()
    expect(dialog).to_be_hidden()


def test_a_hit_is_saved_in_a_new_list_and_the_next_one_in_the_same(
    open_search: OpenSearch, no_cases: None
) -> None:
    search = open_search("#q=circle")
    search.settle()
    first, second = search.ids()[:2]
    search.tiles.nth(0).get_by_role("button", name="Save number 1 as a case").click()
    save(search, name="Round, teaching", note=" Round.\nEasily missed. ")
    expect(search.page.locator(".kept")).to_contain_text(f"Saved {first} in \u201cRound, teaching\u201d.")
    search.tiles.nth(1).locator(".hit-open").focus()
    search.page.keyboard.press("s")
    expect(save_dialog(search).get_by_role("combobox", name="List")).to_contain_text("Round, teaching (1)")
    save(search)
    (listed,) = search.ask(CASES)["lists"]
    cases = search.ask(f"{CASES}/{listed['id']}")["cases"]
    assert [(one["image"]["id"], one["note"]) for one in cases] == [
        (first, "Round.\nEasily missed."),
        (second, ""),
    ]
    # The id stands in addresses: it says nothing.
    assert "ound" not in listed["id"]


@pytest.mark.slow
def test_the_open_image_is_saved_and_its_report_has_the_matched_words_marked(
    open_search: OpenSearch, no_cases: None
) -> None:
    search = open_search("#q=picture+shows&words=exact&image=shape-0")
    search.settle()
    marked = search.dialog.locator(".report mark")
    expect(marked).to_have_text(["picture", "shows"])
    expect(search.dialog.locator(".report .matched-sentence")).to_have_text("The picture shows a circle.")
    search.dialog.get_by_role("button", name="Save case").click()
    save(search, name="Open")
    expect(search.dialog.locator(".dialog-kept")).to_have_text("Saved shape-0 in \u201cOpen\u201d.")
    expect(search.dialog).to_be_visible()


def test_who_writes_already_is_not_moved_when_the_lists_come(open_search: OpenSearch) -> None:
    held: list[Route] = []
    search = open_search("#q=circle")
    search.settle()
    search.page.route(f"**/{CASES}", lambda route: held.append(route))
    with search.page.expect_request(f"**/{CASES}"):
        search.tiles.nth(0).get_by_role("button", name="Save number 1 as a case").click()
    dialog = save_dialog(search)
    dialog.get_by_label("Note").press_sequentially("ro")
    held[0].continue_()
    expect(dialog.get_by_role("button", name="Save case")).to_be_enabled()
    search.page.keyboard.type("und")
    expect(dialog.get_by_label("Note")).to_have_value("round")
    search.page.unroute(f"**/{CASES}")


@pytest.mark.slow
def test_a_case_that_is_refused_says_why_and_stays_in_its_dialog(
    open_search: OpenSearch, room_service: str, watch: Watch
) -> None:
    watch.allow(room_service)
    watch.allow("401")
    search = open_search("", site=room_service)
    search.settle()
    search.tiles.nth(0).get_by_role("button", name="Save number 1 as a case").click()
    dialog = save_dialog(search)
    dialog.get_by_label("Name of the list").fill("Taught")
    dialog.get_by_role("button", name="Save case").click()
    expect(dialog.get_by_role("status")).to_contain_text("A key is needed")
    expect(dialog.get_by_label("Name of the list")).to_have_value("Taught")


@pytest.mark.parametrize(
    ("locale", "facts"),
    [
        (
            "en-GB",
            ["2024-01-15 · PA · 62 y · F", "2024-01-15 · LL L · 62 y · F"],
        ),
        pytest.param(
            "de-DE",
            ["15.01.2024 · PA · 62\u00a0J. · w", "15.01.2024 · LL L · 62\u00a0J. · w"],
            marks=pytest.mark.slow,
        ),
    ],
)
def test_tiles_tell_date_view_age_and_sex(
    open_search: OpenSearch, room_service: str, watch: Watch, locale: str, facts: list[str]
) -> None:
    watch.allow(room_service)
    search = open_search("", site=room_service, locale=locale)
    search.settle()
    told = search.page.locator(".hit-facts").all_inner_texts()
    # Of the picture without metadata nothing is told.
    assert len(told) == search.tiles.count() - 1
    assert [told[0], told[4]] == facts


@pytest.mark.slow
def test_hits_are_grouped_by_study_until_the_reader_chooses(open_search: OpenSearch, sites: Sites) -> None:
    search = open_search("room", **DESK)
    search.settle()
    chosen = search.page.get_by_label("Group by")
    expect(chosen).to_have_value("study")
    with search.page.expect_request("**/search") as asked:
        search.search("a red circle")
    assert json.loads(asked.value.post_data or "")["group_by"] == "study"
    with search.page.expect_request("**/search") as asked:
        chosen.select_option("")
    assert "group_by" not in json.loads(asked.value.post_data or "")
    search.search("a blue square")
    expect(chosen).to_have_value("")


@pytest.mark.slow
def test_the_case_book_opens_compares_takes_out_and_exports(
    open_search: OpenSearch, sites: Sites, no_cases: None
) -> None:
    # axe sets styles of its own while it looks.
    search = open_search("room", bypass_csp=True, **DESK)
    search.settle()
    page, request = search.page, search.page.request
    request.put(f"{sites.service}/{CASES}/round", data={"name": "Round"})
    request.put(f"{sites.service}/{CASES}/other", data={"name": "Other"})
    for number in range(26):
        path = f"{sites.service}/{CASES}/round/images/shape-{number + 10}"
        assert request.put(path, data={"note": f"Note {number}"}).ok
    page.get_by_role("button", name="Saved cases").click()
    book = page.locator("case-book")
    lists, entries = book.get_by_label("List", exact=True), book.locator(".entry")
    expect(lists).to_contain_text("Round (26)")
    expect(book.get_by_text("This list has no images.")).to_be_visible()
    lists.select_option("round")
    expect(entries).to_have_count(24)
    book.get_by_role("button", name="Show more").click()
    expect(entries).to_have_count(26)
    expect(entries.nth(25)).to_contain_text("Note 25")
    assert serious(search) == []

    films = page.locator(".viewport:visible")
    book.get_by_role("button", name="Open shape-11").click()
    expect(films.nth(0)).to_have_attribute("data-film", "shape-11")
    book.get_by_role("button", name="Compare shape-12").click()
    expect(films.nth(1)).to_have_attribute("data-film", "shape-12")

    with page.expect_download() as downloaded:
        book.get_by_role("link", name="Teaching file").click()
    assert downloaded.value.suggested_filename == "teaching-file.zip"
    with zipfile.ZipFile(io.BytesIO(downloaded.value.path().read_bytes())) as archive:
        assert archive.testzip() is None
        assert len(archive.namelist()) == 28

    book.get_by_role("button", name="Take shape-12 out of the list").click()
    book.get_by_role("dialog").get_by_role("button", name="Leave it").click()
    book.get_by_role("button", name="Take shape-12 out of the list").click()
    book.get_by_role("dialog").get_by_role("button", name="Take out").click()
    expect(lists).to_contain_text("Round (25)")
    # Cases saved in the search beside are shown at once.
    image = search.ids()[0]
    search.tiles.nth(0).get_by_role("button", name="Save number 1 as a case").click()
    save_dialog(search).get_by_role("combobox", name="List").select_option("other")
    save(search, note="From the room")
    expect(entries).to_have_count(1)
    expect(entries.first).to_have_attribute("data-id", image)
    expect(lists).to_have_value("other")
    book.get_by_role("button", name="Remove the list").click()
    book.get_by_role("dialog").get_by_role("button", name="Remove the list").click()
    expect(lists).to_have_value("round")
    assert [one["id"] for one in search.ask(CASES)["lists"]] == ["round"]
    page.get_by_role("button", name="Saved cases").click()
    expect(book).to_be_hidden()


@pytest.mark.slow
def test_a_list_is_renamed_and_a_note_edited_by_keys(
    open_search: OpenSearch, sites: Sites, no_cases: None, watch: Watch
) -> None:
    search = open_search("room", bypass_csp=True, **DESK)
    search.settle()
    page, service = search.page, f"{sites.service}/{CASES}"
    page.request.put(f"{service}/round", data={"name": "Round"})
    page.request.put(f"{service}/other", data={"name": "Other"})
    for image in ("shape-10", "shape-11"):
        page.request.put(f"{service}/round/images/{image}", data={})
    page.get_by_role("button", name="Saved cases").click()
    book = page.locator("case-book")
    lists, entries = book.get_by_label("List", exact=True), book.locator(".entry")
    lists.select_option("round")

    renaming = book.get_by_role("button", name="Rename the list")
    renaming.press("Enter")
    dialog = book.get_by_role("dialog", name="Rename the list")
    name = dialog.get_by_label("Name of the list")
    expect(name).to_be_focused()
    expect(name).to_have_value("Round")
    assert serious(search) == []
    watch.allow("409")
    name.fill("Other")
    name.press("Enter")
    expect(dialog.get_by_role("status")).to_contain_text("There is such a list of cases.")
    name.fill(" Round, teaching ")
    name.press("Enter")
    expect(dialog).to_be_hidden()
    expect(lists).to_contain_text("Round, teaching (2)")
    expect(lists).to_have_value("round")
    expect(renaming).to_be_focused()

    book.get_by_role("button", name="Add a note on shape-11").press("Enter")
    note = book.get_by_role("dialog", name="Add a note on shape-11").get_by_label("Note")
    note.press_sequentially("Round.")
    note.press("Enter")
    note.press_sequentially("Easily missed.")
    note.press("Control+Enter")
    expect(entries.nth(1).locator(".entry-note")).to_have_text("Round.\nEasily missed.")
    editing = book.get_by_role("button", name="Edit the note on shape-11")
    expect(editing).to_be_focused()

    # Somebody else writes meanwhile: neither note is lost unseen.
    editing.press("Enter")
    page.request.put(f"{service}/round/images/shape-11", data={"note": "Theirs"})
    watch.allow("412")
    dialog = book.get_by_role("dialog", name="Edit the note on shape-11")
    dialog.get_by_label("Note").fill("Mine")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_role("status")).to_contain_text("nothing was written")
    page.keyboard.press("Escape")
    expect(entries.nth(1)).to_contain_text("Theirs")
    editing.press("Enter")
    dialog.get_by_label("Note").fill("")
    dialog.get_by_role("button", name="Save").click()
    expect(book.get_by_role("button", name="Add a note on shape-11")).to_be_focused()
    assert [one["note"] for one in search.ask(f"{CASES}/round")["cases"]] == ["", ""]


@pytest.mark.slow
def test_buttons_are_about_the_chosen_list_before_it_is_shown(
    open_search: OpenSearch, sites: Sites, no_cases: None
) -> None:
    search = open_search("room", **DESK)
    search.settle()
    page, service = search.page, f"{sites.service}/{CASES}"
    for name in ("Round", "Other"):
        page.request.put(f"{service}/{name.lower()}", data={"name": name})
    page.get_by_role("button", name="Saved cases").click()
    book = page.locator("case-book")
    lists = book.get_by_label("List", exact=True)
    expect(lists).to_have_value("other")
    page.route(f"**/{CASES}**", lambda _: None)
    lists.select_option("round")
    book.get_by_role("button", name="Rename the list").press("Enter")
    expect(book.get_by_label("Name of the list")).to_have_value("Round")

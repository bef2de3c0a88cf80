"""Saved cases: from a tile into a list, from the case book onto the light table and into a file."""

import io
import json
import zipfile

import pytest
from playwright.sync_api import Locator

from tests.browser.conftest import OpenSearch, Watch, step
from tests.browser.room import ROOM_DESK
from tests.browser.search_page import SearchPage, expect, held, serious
from tests.browser.service import SHAPES

pytestmark = pytest.mark.browser

CASES = f"v1/collections/{SHAPES}/cases"


class Book:
    """The case book of the reading room."""

    def __init__(self, search: SearchPage) -> None:
        self.page = search.page
        self.book = self.page.locator("case-book")
        self.lists = self.book.get_by_label("List", exact=True)
        self.entries = self.book.locator(".entry")
        search.settle()
        search.button("Saved cases").click()
        expect(self.lists).to_be_visible()

    def button(self, name: str) -> Locator:
        return self.book.get_by_role("button", name=name)

    def answer(self, name: str) -> None:
        """Press a button of the dialog that asks."""
        self.book.get_by_role("dialog").get_by_role("button", name=name).click()


def save_dialog(search: SearchPage) -> Locator:
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


def put(search: SearchPage, path: str, **body: str) -> None:
    """Write a list, or a case of it, without the page."""
    assert search.page.request.put(f"{search.service}/{CASES}/{path}", data=body).ok


def test_hits_and_an_open_image_are_saved_in_lists(open_search: OpenSearch, no_cases: None) -> None:
    search = open_search("#q=circle").settle()
    first, second = search.ids()[:2]
    step("who writes already is not moved when the lists come")
    lists = held(search.page, f"**/{CASES}")
    with search.page.expect_request(f"**/{CASES}"):
        search.tiles.nth(0).get_by_role("button", name="Save number 1 as a case").click()
    save_dialog(search).get_by_label("Note").press_sequentially("ro")
    lists[0].continue_()
    expect(save_dialog(search).get_by_role("button", name="Save case")).to_be_enabled()
    search.page.keyboard.type("und")
    expect(save_dialog(search).get_by_label("Note")).to_have_value("round")
    search.page.unroute(f"**/{CASES}")
    step("a hit, in a new list")
    save(search, name="Round, teaching", note=" Round.\nEasily missed. ")
    expect(search.page.locator(".kept")).to_contain_text(f"Saved {first} in \u201cRound, teaching\u201d.")
    step("the next one in the same, by a key")
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
    # The id occurs in addresses: it reveals nothing.
    assert "ound" not in listed["id"]
    step("the open image, whose report has the matched words marked")
    search.page.goto(f"{search.service}/#q=picture+shows&words=exact&image=shape-0")
    expect(search.dialog.locator(".report mark")).to_have_text(["picture", "shows"])
    expect(search.dialog.locator(".report .matched-sentence")).to_have_text("The picture shows a circle.")
    search.dialog.get_by_role("button", name="Save case").click()
    save(search)
    kept = "Saved shape-0 in \u201cRound, teaching\u201d."
    expect(search.dialog.locator(".dialog-kept")).to_have_text(kept)
    expect(search.dialog).to_be_visible()


@pytest.mark.slow
def test_tiles_tell_date_view_age_and_sex_and_a_case_that_is_refused_stays_in_its_dialog(
    open_search: OpenSearch, room_service: str, watch: Watch
) -> None:
    for locale, facts in (
        ("de-DE", ["15.01.2024 · PA · 62\u00a0J. · w", "15.01.2024 · LL L · 62\u00a0J. · w"]),
        ("en-GB", ["2024-01-15 · PA · 62 y · F", "2024-01-15 · LL L · 62 y · F"]),
    ):
        search = open_search("", site=room_service, locale=locale).settle()
        expected = search.page.locator(".hit-facts").all_inner_texts()
        # Nothing is shown for the picture without metadata.
        assert len(expected) == search.tiles.count() - 1
        assert [expected[0], expected[4]] == facts
    watch.allow("401")
    search.tiles.nth(0).get_by_role("button", name="Save number 1 as a case").click()
    dialog = save_dialog(search)
    dialog.get_by_label("Name of the list").fill("Taught")
    dialog.get_by_role("button", name="Save case").click()
    expect(dialog.get_by_role("status")).to_contain_text("A key is needed")
    expect(dialog.get_by_label("Name of the list")).to_have_value("Taught")


@pytest.mark.slow
def test_the_case_book_renames_notes_opens_compares_takes_out_and_exports(
    open_search: OpenSearch, no_cases: None, watch: Watch
) -> None:
    # axe sets styles of its own while it looks.
    search = open_search("room", bypass_csp=True, **ROOM_DESK)
    page = search.page
    for name in ("Round", "Other"):
        put(search, name.lower(), name=name)
    for image in ("shape-10", "shape-11"):
        put(search, f"round/images/{image}")
    book = Book(search)
    book.lists.select_option("round")
    step("a name that another list has is refused")
    renaming = book.button("Rename the list")
    renaming.press("Enter")
    dialog = book.book.get_by_role("dialog", name="Rename the list")
    name_field = dialog.get_by_label("Name of the list")
    expect(name_field).to_be_focused()
    expect(name_field).to_have_value("Round")
    assert serious(page) == []
    watch.allow("409")
    name_field.fill("Other")
    name_field.press("Enter")
    expect(dialog.get_by_role("status")).to_contain_text("The list of cases already exists.")
    name_field.fill(" Round, teaching ")
    name_field.press("Enter")
    expect(dialog).to_be_hidden()
    expect(book.lists).to_contain_text("Round, teaching (2)")
    expect(book.lists).to_have_value("round")
    expect(renaming).to_be_focused()
    step("a note of two lines is added")
    book.button("Add a note on shape-11").press("Enter")
    note = book.book.get_by_role("dialog", name="Add a note on shape-11").get_by_label("Note")
    note.press_sequentially("Round.")
    note.press("Enter")
    note.press_sequentially("Easily missed.")
    note.press("Control+Enter")
    expect(book.entries.nth(1).locator(".entry-note")).to_have_text("Round.\nEasily missed.")
    editing = book.button("Edit the note on shape-11")
    expect(editing).to_be_focused()
    step("somebody else writes meanwhile: neither note is lost unseen")
    editing.press("Enter")
    put(search, "round/images/shape-11", note="Theirs")
    watch.allow("412")
    dialog = book.book.get_by_role("dialog", name="Edit the note on shape-11")
    dialog.get_by_label("Note").fill("Mine")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_role("status")).to_contain_text("nothing was written")
    page.keyboard.press("Escape")
    expect(book.entries.nth(1)).to_contain_text("Theirs")
    editing.press("Enter")
    dialog.get_by_label("Note").fill("")
    dialog.get_by_role("button", name="Save").click()
    expect(book.button("Add a note on shape-11")).to_be_focused()
    assert [one["note"] for one in search.ask(f"{CASES}/round")["cases"]] == ["", ""]
    step("buttons are about the chosen list before it is shown")
    page.route(f"**/{CASES}**", lambda _: None)
    book.lists.select_option("other")
    renaming.press("Enter")
    expect(book.book.get_by_label("Name of the list")).to_have_value("Other")
    page.unroute(f"**/{CASES}**")
    page.reload()
    for number in range(26):
        put(search, f"round/images/shape-{number + 10}", note=f"Note {number}")
    step("a list is chosen, and looked at to its end")
    book = Book(search)
    expect(book.lists).to_contain_text("Round, teaching (26)")
    expect(book.book.get_by_text("This list has no images.")).to_be_visible()
    book.lists.select_option("round")
    expect(book.entries).to_have_count(24)
    book.button("Show more").click()
    expect(book.entries).to_have_count(26)
    expect(book.entries.nth(25)).to_contain_text("Note 25")
    assert serious(page) == []
    films = page.locator(".viewport:visible")
    book.button("Open shape-11").click()
    expect(films.nth(0)).to_have_attribute("data-film", "shape-11")
    book.button("Compare shape-12").click()
    expect(films.nth(1)).to_have_attribute("data-film", "shape-12")
    with page.expect_download() as downloaded:
        book.book.get_by_role("link", name="Teaching file").click()
    assert downloaded.value.suggested_filename == "teaching-file.zip"
    with zipfile.ZipFile(io.BytesIO(downloaded.value.path().read_bytes())) as archive:
        assert archive.testzip() is None
        assert len(archive.namelist()) == 28
    step("one is taken out, after a question")
    for choice in ("Leave it", "Remove"):
        book.button("Remove shape-12 from the list").click()
        book.answer(choice)
    expect(book.lists).to_contain_text("Round, teaching (25)")
    step("a case saved in the search next to it is shown at once")
    image = search.ids()[0]
    search.tiles.nth(0).get_by_role("button", name="Save number 1 as a case").click()
    save_dialog(search).get_by_role("combobox", name="List").select_option("other")
    save(search, note="From the room")
    expect(book.entries).to_have_count(1)
    expect(book.entries.first).to_have_attribute("data-id", image)
    expect(book.lists).to_have_value("other")
    book.button("Remove the list").click()
    book.answer("Remove the list")
    expect(book.lists).to_have_value("round")
    assert [one["id"] for one in search.ask(CASES)["lists"]] == ["round"]
    search.button("Saved cases").click()
    expect(book.book).to_be_hidden()
    step("hits are grouped by study until the reader chooses")
    chosen = search.page.get_by_label("Group by")
    expect(chosen).to_have_value("study")
    with search.page.expect_request("**/search") as requested:
        search.search("a red circle")
    assert json.loads(requested.value.post_data or "")["group_by"] == "study"
    with search.page.expect_request("**/search") as requested:
        chosen.select_option("")
    assert "group_by" not in json.loads(requested.value.post_data or "")
    search.search("a blue square")
    expect(chosen).to_have_value("")

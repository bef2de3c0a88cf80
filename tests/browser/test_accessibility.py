"""The page for everybody: by keyboard, on small screens, in dark rooms, and looked at by axe."""

from typing import Any

import pytest

from tests.browser.conftest import DESK, PHONE, OpenSearch, Watch, step
from tests.browser.search_page import box_of, expect, serious

pytestmark = pytest.mark.browser


@pytest.mark.slow
@pytest.mark.parametrize(
    ("window", "scheme"), [(DESK, "light"), (PHONE, "dark"), (DESK, "dark"), (PHONE, "light")]
)
def test_nothing_serious_from_the_landing_to_a_film(
    open_search: OpenSearch, films: str, watch: Watch, scheme: str, window: dict[str, Any]
) -> None:
    # axe sets styles of its own while it looks.
    search = open_search(color_scheme=scheme, reduced_motion="reduce", bypass_csp=True, **window)
    step("the landing, in the colours that the reader has chosen")
    expect(search.page.locator(".landing")).to_be_visible()
    ground, ink = search.page.evaluate(
        """() => [getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]
            .map((colour) => colour.match(/\\d+/g).map(Number).reduce((a, b) => a + b))"""
    )
    assert (ground < ink) == (scheme == "dark")
    assert serious(search.page) == []
    search.search("a red circle")
    expect(search.page.locator(".hit-mat img").first).not_to_have_js_property("naturalWidth", 0)
    assert serious(search.page) == []
    search.open_hit()
    assert serious(search.page) == []
    search.keys("Escape")
    # Until its answer is shown, the former hits are pale.
    with search.answered():
        search.filter_circles()
    assert serious(search.page) == []
    step("a film with its window")
    watch.allow(films)
    search.page.goto(f"{films}/#q=film&image=film.tif")
    search.dialog.get_by_role("button", name="Grey levels").click()
    search.dialog.get_by_role("button", name="All values").click()
    expect(search.dialog.get_by_role("slider", name="Width")).to_be_visible()
    assert serious(search.page) == []


@pytest.mark.slow
def test_everything_is_reached_by_keyboard(open_search: OpenSearch) -> None:
    search = open_search(bypass_csp=True).settle()
    step("letters in the field are text")
    search.field.press_sequentially("m/f?")
    expect(search.field).to_have_value("m/f?")
    expect(search.panel).not_to_be_visible()
    step("from the field through the grid")
    search.go("#q=circle")
    ids = search.ids()
    reachable = search.page.locator(".grid button[tabindex='0']")
    expect(reachable).to_have_count(search.tiles.first.get_by_role("button").count())
    expect(search.page.locator(".hit-open").first).to_have_attribute("tabindex", "0")
    search.keys("/")
    expect(search.field).to_be_focused()
    search.keys("ArrowDown")
    search.expect_focused(ids[0])
    search.keys("ArrowRight", "ArrowRight")
    search.expect_focused(ids[2])
    columns = search.tiles.evaluate_all(
        "tiles => tiles.filter((tile) => tile.offsetTop === tiles[0].offsetTop).length"
    )
    search.keys("ArrowDown")
    search.expect_focused(ids[2 + columns])
    step("into an image, to the next, and back")
    search.keys("Enter")
    expect(search.dialog.locator(".details")).to_contain_text(ids[2 + columns])
    search.keys("ArrowRight")
    expect(search.dialog.locator(".details")).to_contain_text(ids[3 + columns])
    search.keys("Escape")
    expect(search.dialog).not_to_be_visible()
    search.expect_focused(ids[3 + columns])
    step("to the ends of the grid, and no further")
    for pressed, focused in (
        ("End", -1), ("ArrowDown", -1), ("ArrowRight", -1), ("Home", 0), ("ArrowLeft", 0)
    ):  # fmt: skip
        search.keys(pressed)
        search.expect_focused(ids[focused])
    search.keys("ArrowUp")
    expect(search.field).to_be_focused()
    for pressed, kind in (("m", "More like"), ("u", "Less like")):
        step(f"{pressed} makes an example and stays in the grid")
        search.field.focus()
        search.keys("ArrowDown", "ArrowRight")
        marked = search.focused_id()
        assert marked is not None
        search.keys(pressed)
        expect(search.page.get_by_role("group", name=kind).locator(".chip")).to_have_text(marked)
        search.settle()
        search.page.wait_for_function(
            "document.querySelector('image-search').shadowRoot.activeElement?.className === 'hit-open'"
        )
        search.expect_focused(search.ids()[0])
    step("f opens and Escape closes the filters")
    search.keys("f")
    expect(search.panel).to_be_visible()
    search.keys("Escape")
    expect(search.panel).not_to_be_visible()
    expect(search.page.get_by_role("button", name="Filters")).to_be_focused()
    step("the question mark shows the keys from the first on, and so does a button")
    search.page.set_viewport_size({"width": 900, "height": 500})
    keys = search.page.get_by_role("dialog", name="Keyboard shortcuts")
    search.keys("?")
    expect(search.page.get_by_role("heading", name="Keyboard shortcuts")).to_be_in_viewport()
    search.keys("Escape")
    expect(keys).not_to_be_visible()
    search.button("Keyboard shortcuts").click()
    expect(keys).to_be_visible()
    assert serious(search.page) == []


@pytest.mark.slow
def test_nothing_is_wider_than_a_phone(open_search: OpenSearch) -> None:
    search = open_search(**PHONE)
    expect(search.page.locator(".landing")).to_be_visible()
    search.settle()
    assert not search.scrolls_sideways()
    step("two columns of hits, with buttons large enough for a finger")
    search.search("a sentence that is longer than the field is wide, as sentences often are")
    assert not search.scrolls_sideways()
    tops = search.tiles.evaluate_all("tiles => tiles.slice(0, 3).map((tile) => tile.offsetTop)")
    assert tops[0] == tops[1] < tops[2]
    expect(search.page.locator(".hit-marks").first).to_have_css("opacity", "1")
    for button in search.tiles.first.locator(".hit-mark, .judge-button").all():
        assert button.evaluate("button => Math.min(button.offsetWidth, button.offsetHeight)") >= 36
    right = search.tiles.first.locator(".judge-button.right")
    with search.page.expect_response("**/feedback"):
        right.tap()
    expect(right).to_have_attribute("aria-pressed", "true")
    assert not search.scrolls_sideways()
    step("filters, and a value that is looked for")
    search.page.get_by_role("button", name="Filters").tap()
    search.group("study").get_by_label("Find a value of study").fill("S0")
    expect(search.checks("study").first).to_be_visible()
    search.group("labels").get_by_label("circle").check()
    assert not search.scrolls_sideways()
    search.button("Show results").tap()
    expect(search.panel).not_to_be_visible()
    expect(search.answer).to_contain_text("20 images")
    assert not search.scrolls_sideways()
    search.open_hit()
    assert not search.scrolls_sideways()
    assert search.dialog.bounding_box() == {"x": 0, "y": 0, "width": 360, "height": 740}
    step("many examples")
    many = "&".join(f"like=shape-{number}" for number in range(20, 31))
    search.go(f"#collection=shapes&q=circle&{many}")
    with search.answered():
        search.tiles.first.get_by_role("button", name="Less like number 1").tap()
    expect(search.disliked).to_have_count(1)
    expect(search.liked).to_have_count(11)
    assert not search.scrolls_sideways()
    expect(search.button("Open shape-20")).to_be_visible()
    for drop in search.page.locator(".chip-drop").all():
        box = box_of(drop)
        assert box["x"] + box["width"] <= 360
    search.go("#collection=shapes&q=a+red+circle&words=exact&group=group")
    assert not search.scrolls_sideways()


@pytest.mark.slow
def test_at_200_percent_and_in_forced_colours_nothing_is_lost(open_search: OpenSearch) -> None:
    window = {"viewport": {"width": 640, "height": 430}}
    search = open_search("#q=circle&words=off", forced_colors="active", **window).settle()
    step("filters at 200 %")
    assert not search.scrolls_sideways()
    search.filter_circles()
    search.button("Show results").click()
    assert not search.scrolls_sideways()
    step("a switch that is on is seen")

    def drawn() -> list[str]:
        colours: list[str] = search.words.evaluate(
            """input => [getComputedStyle(input), getComputedStyle(input, '::after')]
                .flatMap((style) => [style.backgroundColor, style.left])"""
        )
        return colours

    off = drawn()
    assert off[0] != off[2]
    with search.answered():
        search.words.check()
    on = drawn()
    assert on[0] not in (on[2], off[0])
    assert not search.scrolls_sideways()
    step("a thumb that is pressed is seen")
    thumb = search.tiles.first.locator(".judge-button.right")
    before = thumb.evaluate("button => getComputedStyle(button).outlineStyle")
    thumb.click()
    expect(thumb).to_have_attribute("aria-pressed", "true")
    search.page.mouse.click(2, 2)
    assert before == "none" != thumb.evaluate("button => getComputedStyle(button).outlineStyle")
    thumb.click()
    expect(thumb).to_have_attribute("aria-pressed", "false")

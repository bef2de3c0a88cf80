"""Small screens, dark rooms, reduced motion."""

import pytest

from tests.browser.conftest import OpenSearch
from tests.browser.search_page import expect

pytestmark = pytest.mark.browser

PHONE = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}


def test_nothing_is_wider_than_a_phone(open_search: OpenSearch) -> None:
    search = open_search("?collection=shapes", **PHONE)
    expect(search.page.locator(".landing")).to_be_visible()
    assert not search.scrolls_sideways()
    search.search("a sentence that is longer than the field is wide, as sentences often are")
    assert not search.scrolls_sideways()
    search.page.get_by_role("button", name="Filters").tap()
    search.group("labels").get_by_label("circle").check()
    assert not search.scrolls_sideways()
    search.page.get_by_role("button", name="Show results").tap()
    expect(search.panel).not_to_be_visible()
    expect(search.answer).to_contain_text("20 images")
    assert not search.scrolls_sideways()
    search.tiles.first.locator(".hit-open").tap()
    expect(search.dialog.locator(".details")).to_contain_text("pixels")
    assert not search.scrolls_sideways()
    assert search.dialog.bounding_box() == {"x": 0, "y": 0, "width": 360, "height": 740}


def test_two_columns_on_a_phone_with_buttons_large_enough_for_a_finger(open_search: OpenSearch) -> None:
    search = open_search("#q=circle", **PHONE)
    search.settle()
    tops = search.tiles.evaluate_all("tiles => tiles.slice(0, 3).map((tile) => tile.offsetTop)")
    assert tops[0] == tops[1] < tops[2]
    expect(search.page.locator(".hit-marks").first).to_have_css("opacity", "1")
    for mark in search.tiles.first.locator(".hit-mark").all():
        assert mark.evaluate("button => Math.min(button.offsetWidth, button.offsetHeight)") >= 36


@pytest.mark.parametrize(
    ("scheme", "darker"), [("dark", "ground"), pytest.param("light", "ink", marks=pytest.mark.slow)]
)
def test_colours_follow_the_reader(open_search: OpenSearch, scheme: str, darker: str) -> None:
    search = open_search(color_scheme=scheme)
    expect(search.page.locator(".landing")).to_be_visible()
    ground, ink = search.page.evaluate(
        """() => [getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]
            .map((colour) => colour.match(/\\d+/g).map(Number).reduce((a, b) => a + b))"""
    )
    assert (ground < ink) == (darker == "ground")


def test_reduced_motion_stills_the_animations(open_search: OpenSearch) -> None:
    search = open_search(reduced_motion="reduce")
    search.page.route("**/search", lambda _: None)
    search.field.fill("circle")
    search.field.press("Enter")
    expect(search.page.locator(".skeleton").first).to_have_css("animation-iteration-count", "1")


@pytest.mark.slow
def test_whole_images_are_shown_never_cropped(open_search: OpenSearch) -> None:
    search = open_search("#q=circle")
    search.settle()
    expect(search.page.locator(".hit-mat img").first).to_have_css("object-fit", "contain")


@pytest.mark.slow
def test_at_200_percent_nothing_is_lost(open_search: OpenSearch) -> None:
    search = open_search("#q=circle&words=exact", viewport={"width": 640, "height": 430})
    search.settle()
    assert not search.scrolls_sideways()
    search.page.get_by_role("button", name="Filters").click()
    search.group("labels").get_by_label("circle").check()
    search.page.get_by_role("button", name="Show results").click()
    expect(search.answer).to_contain_text("20 images")
    assert not search.scrolls_sideways()


@pytest.mark.slow
def test_forced_colours_leave_what_is_on_to_be_seen(open_search: OpenSearch) -> None:
    search = open_search("#q=circle&words=off", forced_colors="active")
    search.settle()

    def drawn() -> list[str]:
        colours: list[str] = search.words.evaluate(
            """input => [getComputedStyle(input), getComputedStyle(input, '::after')]
                .flatMap((style) => [style.backgroundColor, style.left])"""
        )
        return colours

    off = drawn()
    assert off[0] != off[2]
    with search.page.expect_response("**/search"):
        search.words.check()
    search.settle()
    on = drawn()
    assert on[0] not in (on[2], off[0])
    thumb = search.tiles.first.locator(".judge-button.right")
    before = thumb.evaluate("button => getComputedStyle(button).outlineStyle")
    thumb.click()
    expect(thumb).to_have_attribute("aria-pressed", "true")
    search.page.mouse.click(2, 2)
    assert before == "none" != thumb.evaluate("button => getComputedStyle(button).outlineStyle")
    thumb.click()
    expect(thumb).to_have_attribute("aria-pressed", "false")

"""Views of several processes on one folder of snapshots: one leads, and the others take what it writes."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from index.engine import SearchEngine
from index.views.manager import Views
from tests.index.samples import unit_vectors
from tests.index.views.held import COUNT, DIM, active, current, is_building, reference_of, wait

Opener = Callable[[Callable[[], bool]], Views]


@pytest.fixture
def opener(tmp_path: Path) -> Iterator[Opener]:
    """Opens the views of a process that leads or does not."""
    with ExitStack() as opened:
        yield lambda leads: opened.enter_context(closing(Views(tmp_path / "views", leads=leads)))


def _share(engine: SearchEngine, views: Views) -> None:
    with engine.home.catalogue.reading() as reading:
        views.share(reading.session, active(engine)[0])


def test_others_take_the_vectors_and_codes_of_the_lead(home: SearchEngine, opener: Opener) -> None:
    lead, other = opener(lambda: True), opener(lambda: False)
    alone = current(home, other)
    _share(home, other)
    assert current(home, other) is alone
    assert alone.unshared == COUNT
    assert current(home, lead).unshared == 0
    _share(home, other)
    shared = current(home, other)
    assert shared is not alone
    assert shared.unshared == 0
    query = unit_vectors(1, DIM, 5)[0]
    expected = reference_of(shared).search(query, 20)
    assert shared.search(query, 20).keys.tolist() == expected.keys.tolist()

    home.set_view("c", "ivf")
    assert current(home, other).name == "exact"
    assert not is_building(other)
    wait(lambda: current(home, lead).name == "ivf" and not is_building(lead))

    def has_codes() -> bool:
        _share(home, other)
        return current(home, other).name == "ivf"

    # The lead writes them once it searches by them.
    wait(has_codes)
    assert current(home, other).unshared == current(home, lead).unshared == 0
    taken = current(home, other)
    for views in (lead, other):
        _share(home, views)
    assert current(home, other) is taken


def test_who_leads_next_does_what_was_left_undone(home: SearchEngine, opener: Opener) -> None:
    leads = False
    views = opener(lambda: leads)
    assert current(home, views).unshared == COUNT
    home.set_view("c", "ivf")
    assert current(home, views).name == "exact"
    leads = True
    _share(home, views)
    assert current(home, views).unshared == 0
    wait(lambda: current(home, views).name == "ivf" and not is_building(views))

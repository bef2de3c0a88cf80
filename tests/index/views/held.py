"""Views of a collection of vectors that are held by `Views`, and what is waited for."""

import time
from collections.abc import Callable

from index.catalogue.collections import Generation, find_active
from index.engine import SearchEngine
from index.vectors.protocol import Vectors, ViewName, encode_vectors, rounded_vectors, unit
from index.vectors.view import CosineView
from index.views.manager import Views
from tests.index.samples import unit_vectors
from tests.index.vectors.reference import ReferenceView

DIM = 16
COUNT = 3000
SECONDS = 60


def vectors() -> Vectors:
    return unit_vectors(COUNT, DIM)


def active(engine: SearchEngine) -> tuple[Generation, int]:
    with engine.home.catalogue.read() as session:
        result = find_active(session, "c")
    assert result is not None
    return result


def current(engine: SearchEngine, views: Views, collection: str = "c") -> CosineView:
    with engine.home.catalogue.reading() as reading:
        result = find_active(reading.session, collection)
        assert result is not None
        _, view = views.current(reading, *result)
    assert isinstance(view, CosineView)
    return view


def wait(until: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not until():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def is_building(views: Views) -> bool:
    return any(entry.building for entry in views._entries.values())


def reference_of(view: CosineView) -> ReferenceView:
    """The same keys in rising order with the vectors as the catalogue has them."""
    reference = ReferenceView(DIM)
    reference.add(view.keys(), unit(rounded_vectors(encode_vectors(vectors()), DIM)))
    return reference


def choose(engine: SearchEngine, views: Views, name: ViewName) -> CosineView:
    """Choose a view, and return it once it is that one and its snapshot is written."""
    engine.set_view("c", name)
    view = current(engine, views)
    wait(lambda: view.name == name and not is_building(views))
    return view

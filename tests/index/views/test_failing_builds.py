"""A build of codes that fails is logged and rests, while answers stay exact."""

import logging
import threading
from contextlib import closing
from typing import Any

import pytest

from index.engine import SearchEngine
from index.vectors.protocol import ViewName
from index.vectors.view import CosineView
from index.views.manager import Views
from index.writes.deletion import delete_images
from tests.index.samples import make_records, put_vectors, unit_vectors
from tests.index.views.test_manager import (
    COUNT,
    DIM,
    _active,
    _current,
    _is_building,
    _reference,
    _wait,
    filled,
    home,
    views,
)

__all__ = ["filled", "home", "views"]


@pytest.mark.parametrize("error", [MemoryError, KeyError])
def test_a_build_that_fails_is_logged_and_rests_while_answers_stay_exact(
    home: SearchEngine,
    views: Views,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: type[Exception],
) -> None:
    begun: list[ViewName] = []

    def failing(self: CosineView, name: ViewName, *_: object) -> bool:
        begun.append(name)
        raise error

    home.set_view("c", "ivf")
    with monkeypatch.context() as broken, caplog.at_level(logging.ERROR):
        broken.setattr(CosineView, "build", failing)
        view = _current(home, views)
        _wait(lambda: "was not built" in caplog.text and not _is_building(views))
        assert "searches go on by exact" in caplog.text
        query = unit_vectors(1, DIM, seed=1)[0]
        found = view.search(query, 10)
        assert found.exact
        assert found.keys.tolist() == _reference(view).search(query, 10).keys.tolist()
        home.set_view("c", "ivf")
        _current(home, views)
        _wait(lambda: not _is_building(views))
        assert begun == ["ivf"]
    # The first write after the rest tries again.
    monkeypatch.setattr("index.views.manager._RESTS", 0)
    home.set_view("c", "ivf")
    _wait(lambda: _current(home, views).name == "ivf")


def test_views_that_are_closed_answer_and_build_nothing(home: SearchEngine, views: Views) -> None:
    home.set_view("c", "ivf")
    views.close()
    view = _current(home, views)
    assert (view.name, len(view)) == ("exact", COUNT)
    assert not _is_building(views)


def test_a_build_that_outlives_its_view_writes_no_snapshot(
    home: SearchEngine, views: Views, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The view that took its place holds more, and the sequence number is of that one."""
    begun, go_on = threading.Event(), threading.Event()
    build = CosineView.build

    def slow(self: CosineView, name: ViewName = "ivf", *arguments: Any) -> bool:
        begun.set()
        assert go_on.wait(60)
        return build(self, name, *arguments)

    home.set_view("c", "ivf")
    with monkeypatch.context() as slowed:
        slowed.setattr(CosineView, "build", slow)
        old = _current(home, views)
        assert begun.wait(60)
        old._inconsistent = True
        generation, _ = _active(home)
        # As many as before: the number of vectors would tell that the snapshot is of another state.
        with home.home.catalogue.write() as session:
            delete_images(session, "c", [make_records(1)[0].id])
        put_vectors(home, generation, make_records(COUNT + 1)[COUNT:], unit_vectors(1, DIM, seed=9))
        keys = _current(home, views).keys().tolist()
        go_on.set()
        _wait(lambda: not _is_building(views))
    views.close()
    with closing(Views(views._folder)) as later:
        assert _current(home, later).keys().tolist() == keys

"""A build of codes that fails is logged and rests, while answers stay exact."""

import logging

import pytest

from index.engine import SearchEngine
from index.vectors.protocol import ViewName
from index.vectors.view import CosineView
from index.views.manager import Views
from tests.index.samples import unit_vectors
from tests.index.views.test_manager import DIM, _current, _is_building, _reference, _wait, home, views

__all__ = ["home", "views"]


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

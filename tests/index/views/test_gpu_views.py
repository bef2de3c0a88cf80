"""Views of a collection on a GPU, whose index is computed by the CPU here."""

import logging
from pathlib import Path

import pytest

from index.engine import SearchEngine
from index.search.request import BatchEntry, SearchRequest
from index.search.results import SearchPage
from index.vectors.gpu import GpuScan
from index.vectors.view import CosineView
from index.views.manager import Views
from tests.index.homes import open_home
from tests.index.meanwhile import hold_up, note_calls
from tests.index.samples import CpuAsGpu, begin_generation, make_records, put_vectors, unit_vectors
from tests.index.views.held import (
    COUNT,
    DIM,
    SECONDS,
    active,
    choose,
    current,
    is_building,
    reference_of,
    vectors,
    wait,
)

# Free GPU memory of which three quarters are enough for the vectors, twice, and half a GiB.
ROOM = (2 * COUNT * 2 * DIM + (1 << 29)) * 4 // 3 + 1


def _asked(engine: SearchEngine, count: int = 5) -> list[list[str]]:
    active = engine.active("c")
    return [
        [hit.id for hit in engine.search(active, query, SearchRequest(k=10)).hits]
        for query in unit_vectors(count, DIM, seed=1)
    ]


def test_an_engine_scans_on_the_gpu_that_is_asked_for_also_after_a_restart(tmp_path: Path) -> None:
    engine = open_home(tmp_path / "home", gpu=CpuAsGpu())
    put_vectors(engine, begin_generation(engine, "c", DIM), make_records(COUNT), vectors())
    expected = _asked(engine)
    engine.set_view("c", "gpu")
    assert _asked(engine) == expected
    view = current(engine, engine._views)
    wait(lambda: view.name == "gpu")
    assert view.device_bytes >= COUNT * DIM * 2
    assert _asked(engine) == expected
    entries = [BatchEntry(vector, SearchRequest(k=10), None) for vector in unit_vectors(5, DIM, seed=1)]
    many = engine.search_batch(engine.active("c"), entries)
    assert [[hit.id for hit in page.hits] for page in many if isinstance(page, SearchPage)] == expected
    assert [choice.name for choice in engine.explain_views("c") if choice.chosen] == ["gpu"]
    put_vectors(engine, active(engine)[0], make_records(COUNT + 1)[COUNT:], unit_vectors(1, DIM, seed=1))
    expected = _asked(engine)
    assert expected[0][0] == f"image-{COUNT}"
    assert view.name == "gpu"
    engine.save_snapshot("c")
    engine.close()
    # The snapshot is that of an exact view: whoever has no GPU reads it as well.
    for gpu, name in ((CpuAsGpu(), "gpu"), (None, "exact")):
        restarted = open_home(tmp_path / "home", gpu=gpu)
        assert _asked(restarted) == expected
        again = current(restarted, restarted._views)
        wait(lambda again=again, name=name: again.name == name)  # type: ignore[misc]
        assert _asked(restarted) == expected
        restarted.close()


def test_a_saved_snapshot_needs_no_copy_on_the_gpu(home: SearchEngine, gpu_views: Views) -> None:
    home.set_view("c", "gpu")
    generation, sequence = active(home)
    with home.home.catalogue.read() as session:
        gpu_views.save(session, generation, sequence)
    assert current(home, gpu_views).name == "exact"


def test_what_a_view_has_on_the_gpu_does_not_count_against_it(home: SearchEngine, tmp_path: Path) -> None:
    home.set_view("c", "gpu")
    gpu = CpuAsGpu(1 << 30)
    views = Views(tmp_path / "views", gpu)
    view = current(home, views)
    wait(lambda: view.name == "gpu")
    gpu.left = ROOM - view.device_bytes
    home.set_view("c", "gpu")
    assert current(home, views).name == "gpu"
    with home.home.catalogue.read() as session:
        choices = views.explain(session, active(home)[0])
    assert [choice.name for choice in choices if choice.chosen] == ["gpu"]
    # Others take it: the view gives way.
    gpu.left = 0
    home.set_view("c", "gpu")
    assert (current(home, views).name, view.device_bytes) == ("exact", 0)
    views.close()


def test_a_gpu_that_fails_rests_before_it_is_tried_again(
    home: SearchEngine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, gpu_views: Views
) -> None:
    uploads = note_calls(monkeypatch, CosineView, "upload")

    def failing(*_: object) -> None:
        raise RuntimeError("lost")

    def again(rests: float) -> CosineView:
        monkeypatch.setattr("index.views.manager._RESTS", rests)
        home.set_view("c", "gpu")
        return current(home, gpu_views)

    home.set_view("c", "gpu")
    with monkeypatch.context() as broken, caplog.at_level(logging.ERROR):
        broken.setattr(GpuScan, "add", failing)
        view = current(home, gpu_views)
        wait(lambda: "was not built" in caplog.text)
        wait(lambda: not is_building(gpu_views))
    assert (again(600).name, len(uploads), is_building(gpu_views)) == ("exact", 1, False)
    again(0)
    wait(lambda: view.name == "gpu" and not is_building(gpu_views))
    with monkeypatch.context() as broken:
        assert view._gpu is not None
        broken.setattr(view._gpu._held[0], "search", failing)
        query = unit_vectors(1, DIM, seed=1)[0]
        found = view.search(query, 10)
    assert found.keys.tolist() == reference_of(view).search(query, 10).keys.tolist()
    assert view.name == "exact"
    assert (again(600).name, len(uploads), is_building(gpu_views)) == ("exact", 2, False)
    again(0)
    wait(lambda: view.name == "gpu")


def test_a_view_that_leaves_the_gpu_by_choice_may_come_back_at_once(
    home: SearchEngine, gpu_views: Views
) -> None:
    home.set_view("c", "gpu")
    view = current(home, gpu_views)
    wait(lambda: view.name == "gpu" and not is_building(gpu_views))
    home.set_view("c", "exact")
    assert current(home, gpu_views).name == "exact"
    assert choose(home, gpu_views, "gpu") is view
    assert choose(home, gpu_views, "ivf") is view
    assert choose(home, gpu_views, "gpu") is view
    home.set_view("c", None)
    current(home, gpu_views)
    assert (view.name, view.device_bytes) == ("exact", 0)


def test_a_choice_made_during_an_upload_is_followed_once_that_has_ended(
    home: SearchEngine, monkeypatch: pytest.MonkeyPatch, gpu_views: Views
) -> None:
    begun, go_on = hold_up(monkeypatch, GpuScan, "add")
    home.set_view("c", "gpu")
    view = current(home, gpu_views)
    assert begun.wait(SECONDS)
    home.set_view("c", "exact")
    current(home, gpu_views)
    go_on.set()
    wait(lambda: not is_building(gpu_views))
    assert view.name == "gpu"
    assert (current(home, gpu_views).name, view.device_bytes) == ("exact", 0)


def test_a_process_beside_the_one_that_has_the_gpu_builds_no_codes(
    home: SearchEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Codes are what size and memory would choose.
    monkeypatch.setattr("index.views.manager._SCANNED", 0)
    home.set_view("c", "gpu")
    views = Views(tmp_path / "views", CpuAsGpu(ROOM - COUNT * DIM * 2))
    generation, sequence = active(home)
    with home.home.catalogue.read() as session:
        views.save(session, generation, sequence)
        chosen = [choice.name for choice in views.explain(session, generation) if choice.chosen]
    assert chosen == ["gpu"]
    assert [held.view.name for held in views._held.values() if isinstance(held.view, CosineView)] == ["exact"]
    views.close()

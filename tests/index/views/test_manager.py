"""Views follow size, memory and an operator; codes are built in the background while answers are exact."""

import logging
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import pytest

from index.catalogue.collections import Generation, find_active, next_sequence
from index.engine import SearchEngine
from index.errors import NoActiveGenerationError, UnknownCollectionError, ViewError
from index.search.request import BatchEntry, SearchRequest
from index.search.results import SearchPage
from index.vectors.ann import IvfPq
from index.vectors.gpu import GpuScan
from index.vectors.protocol import VIEW_NAMES, Vectors, ViewName, encode_vectors
from index.vectors.view import CosineView
from index.views import snapshots
from index.views.manager import NO_GPU, Views, choose_view, stored_queries
from index.writes.deletion import delete_images
from index.writes.vectors import add_text_vectors, texts_without_vectors
from tests.index.homes import in_read, in_write, open_home
from tests.index.meanwhile import hold_up, note_calls
from tests.index.samples import (
    CpuAsGpu,
    begin_generation,
    make_records,
    put_records,
    put_vectors,
    snapshot_of,
    unit_vectors,
)
from tests.index.views.held import (
    COUNT,
    DIM,
    SECONDS,
    active,
    choose,
    current,
    is_building,
    reference_of,
    wait,
)


def test_answers_are_exact_until_the_background_has_built_codes_which_the_next_start_reads(
    home: SearchEngine, views: Views, tmp_path: Path
) -> None:
    home.set_view("c", "ivf")
    view = current(home, views)
    reference = reference_of(view)
    queries = unit_vectors(20, DIM, seed=1)
    # While codes are built and after it; so few vectors are scanned in any case.
    while view.name == "exact":
        for query in queries[:3]:
            assert view.search(query, 10).keys.tolist() == reference.search(query, 10).keys.tolist()
    for query in queries:
        result, expected = view.search(query, 10), reference.search(query, 10)
        assert len(np.intersect1d(result.keys, expected.keys)) >= 9
    views.close()
    restarted = Views(tmp_path / "views")
    again = current(home, restarted)
    assert again.name == "ivf"
    assert again.operating_point == view.operating_point
    restarted.close()


def test_the_recall_of_codes_is_told_by_views_and_snapshots(home: SearchEngine, tmp_path: Path) -> None:
    assert home.operating_point("c") is None
    assert home.measured_recalls() == []
    view = choose(home, home._views, "ivf")
    point = view.operating_point
    assert point is not None
    assert 0.99 <= point.recall <= 1 and point.lowest >= 0.9
    # The snapshot is written behind the build.
    wait(lambda: home.operating_point("c") == point)
    assert home.measured_recalls() == [("c", "images", point)]


def test_a_choice_takes_effect_with_the_next_search(home: SearchEngine, views: Views) -> None:
    view = current(home, views)
    assert view.name == "exact"
    home.set_view("c", "ivf")
    assert current(home, views) is view
    # While the snapshot of what was built is written, searches continue with it.
    wait(lambda: view.name == "ivf" and not is_building(views))
    home.set_view("c", "exact")
    current(home, views)
    assert view.name == "exact"
    assert choose(home, views, "ivf") is choose(home, views, "mapped") is view
    # So few are scanned where nothing is chosen.
    home.set_view("c", None)
    current(home, views)
    assert (view.name, view.mapped) == ("exact", False)


def _write_and_save(engine: SearchEngine, folder: Path) -> int:
    """Write five vectors and the snapshot, as another process does; return the new sequence number."""
    put_vectors(engine, active(engine)[0], make_records(COUNT + 5)[COUNT:], unit_vectors(5, DIM, seed=7))
    generation, sequence = active(engine)
    other = Views(folder)
    in_read(engine, other.save, generation, sequence)
    other.close()
    return sequence


def test_a_snapshot_newer_than_the_request_is_used_with_its_codes(
    home: SearchEngine, views: Views, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home.set_view("c", "ivf")
    generation, sequence = active(home)
    later = _write_and_save(home, tmp_path / "views")
    with home.home.catalogue.reading() as reading, caplog.at_level(logging.WARNING):
        _, view = views.current(reading, generation, sequence)
    assert "does not fit" not in caplog.text
    assert isinstance(view, CosineView)
    assert (view.name, len(view)) == ("ivf", COUNT + 5)
    assert views.entry(generation, "images").newest == later
    # What was read of the later state is not read again.
    with home.home.catalogue.reading() as reading:
        assert views.current(reading, generation, later)[1] is view
        assert not reading.opened


def test_a_snapshot_newer_than_what_is_read_stays(home: SearchEngine, views: Views, tmp_path: Path) -> None:
    generation, sequence = active(home)
    with home.home.catalogue.reading() as reading:
        assert find_active(reading.session, "c") == (generation, sequence)
        later = _write_and_save(home, tmp_path / "views")
        manifest = tmp_path / "views" / generation.uid / "snapshot.json"
        written = manifest.read_bytes()
        _, view = views.current(reading, generation, sequence)
    assert len(view) == COUNT
    assert manifest.read_bytes() == written
    with home.home.catalogue.reading() as reading:
        assert len(views.current(reading, generation, later)[1]) == COUNT + 5


def _codes(view: CosineView) -> IvfPq:
    assert view._ann is not None
    return view._ann.codes


@pytest.mark.slow
@pytest.mark.parametrize("count", [50, 2000])
def test_codes_learn_new_rows_or_are_built_anew_in_the_background(
    home: SearchEngine, views: Views, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("index.vectors.view._MIN_LAGGING", 10)
    view = choose(home, views, "ivf")
    codes = _codes(view)
    vectors = unit_vectors(count, DIM, seed=5)
    generation, _ = active(home)
    put_vectors(home, generation, make_records(COUNT + count)[COUNT:], vectors)
    wait(lambda: not current(home, views).has_pending and len(_codes(view)) == COUNT + count)
    # Half as many again are too many for the centroids.
    assert (_codes(view) is codes) == (count < COUNT / 2)
    for query in vectors[:: count // 10]:
        assert view.search(query, 1).scores[0] >= 0.999


def test_searches_after_a_write_go_on_while_the_snapshot_of_a_build_is_written(
    home: SearchEngine, views: Views, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def wait_in_a_build(_: Path) -> None:
        if threading.current_thread().name.startswith("codes"):
            begun.set()
            assert go_on.wait(SECONDS)

    note_calls(monkeypatch, snapshots, "_sha256", wait_in_a_build)
    home.set_view("c", "ivf")
    current(home, views)
    assert begun.wait(SECONDS)
    generation, sequence = active(home)
    put_vectors(home, generation, make_records(COUNT + 5)[COUNT:], unit_vectors(5, DIM, seed=7))
    with ThreadPoolExecutor(1) as pool:
        results = pool.submit(current, home, views)
        try:
            assert len(results.result(SECONDS / 2)) == COUNT + 5
        finally:
            go_on.set()
    views.close()
    of = snapshot_of(generation.uid, generation.digest, DIM)
    read = snapshots.read_snapshot(tmp_path / "views" / generation.uid, of)
    assert read is not None
    assert isinstance(read[0], CosineView)
    assert (read[0].name, len(read[0]), read[1]) == ("ivf", COUNT, sequence)


def test_closing_waits_for_a_build_that_has_begun(
    home: SearchEngine, views: Views, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = hold_up(monkeypatch, CosineView, "build")
    home.set_view("c", "ivf")
    view = current(home, views)
    assert begun.wait(SECONDS)
    threading.Timer(0.5, go_on.set).start()
    views.close()
    assert view.name == "ivf"


def test_what_is_explained_is_what_is_searched(home: SearchEngine) -> None:
    for chosen in [name for name in VIEW_NAMES if name != "gpu"]:
        home.set_view("c", chosen)
        choices = home.explain_views("c")
        assert [choice.name for choice in choices if choice.chosen] == [chosen]
        assert all(choice.reason for choice in choices)
    home.set_view("c", None)
    assert [choice.name for choice in home.explain_views("c") if choice.chosen] == ["exact"]
    sizes = {choice.name: choice.bytes for choice in home.explain_views("c")}
    assert all(sizes[name] >= COUNT * DIM * 2 for name in VIEW_NAMES if name != "mapped")
    assert sizes["mapped"] < sizes["ivf"] - COUNT * DIM


def test_vectors_without_a_sign_are_scanned_whatever_was_chosen(sqlite: SearchEngine) -> None:
    put_records(sqlite, make_records(50), DIM, unsigned=True)
    for chosen in ("ivf", "gpu"):
        sqlite.set_view("c", chosen)
        choices = sqlite.explain_views("c")
        assert [choice.name for choice in choices if choice.chosen] == ["exact"]
        assert {choice.reason for choice in choices} == {
            "blades and vectors without a sign are always scanned by the CPU"
        }


def test_vectors_stay_in_the_snapshot_through_restarts_writes_and_damage(
    home: SearchEngine, views: Views, tmp_path: Path
) -> None:
    home.set_view("c", "mapped")
    view = current(home, views)
    assert view.mapped
    wait(lambda: view.name == "mapped")
    views.close()
    restarted = Views(tmp_path / "views")
    again = current(home, restarted)
    assert (again.name, again.operating_point) == ("mapped", view.operating_point)
    assert again.memory_bytes < COUNT * DIM * 2 + COUNT * 25
    put_vectors(home, active(home)[0], make_records(COUNT + 5)[COUNT:], unit_vectors(5, DIM, seed=7))
    query = unit_vectors(5, DIM, seed=7)[3]
    key = int(current(home, restarted).search(query, 1).keys[0])
    assert key == current(home, restarted).keys()[-2]
    (rows,) = (tmp_path / "views").rglob("*.rows")
    os.truncate(rows, 4096)
    with pytest.raises(ViewError):
        current(home, restarted).search(query, 10, allowed=np.arange(1000))
    # It is read from the catalogue, and the file replaced.
    rebuilt = current(home, restarted)
    assert rebuilt is not again
    assert rebuilt.search(query, 1).keys.tolist() == [key]
    assert len(rebuilt) == COUNT + 5
    restarted.close()


def test_vectors_that_outgrow_memory_move_to_files_and_come_back_where_there_is_plenty(
    home: SearchEngine, views: Views, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = COUNT * DIM * 100
    monkeypatch.setattr("index.views.manager._SCANNED", 1)
    monkeypatch.setattr("index.views.manager.free_memory", lambda: memory)
    view = current(home, views)
    wait(lambda: view.name == "ivf")
    assert not view.mapped
    memory = 1000
    put_vectors(home, active(home)[0], make_records(COUNT + 1)[COUNT:], unit_vectors(1, DIM, seed=7))
    assert current(home, views) is view
    wait(lambda: view.name == "mapped")
    choices = in_read(home, views.explain, active(home)[0])
    assert [choice.name for choice in choices if choice.chosen] == ["mapped"]
    views.close()
    late = Views(tmp_path / "views")
    assert current(home, late).name == "mapped"
    memory = COUNT * DIM * 100
    home.set_view("c", None)
    view = current(home, late)
    wait(lambda: view.name == "ivf")
    late.close()


def test_a_view_needs_its_collection(home: SearchEngine) -> None:
    with pytest.raises(UnknownCollectionError):
        home.set_view("other", "ivf")
    with pytest.raises(UnknownCollectionError):
        home.explain_views("other")
    begin_generation(home, "empty", DIM)
    with pytest.raises(NoActiveGenerationError):
        home.explain_views("empty")


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
        view = current(home, views)
        wait(lambda: "was not built" in caplog.text and not is_building(views))
        assert "searches continue with exact" in caplog.text
        query = unit_vectors(1, DIM, seed=1)[0]
        page = view.search(query, 10)
        assert page.exact
        assert page.keys.tolist() == reference_of(view).search(query, 10).keys.tolist()
        home.set_view("c", "ivf")
        current(home, views)
        wait(lambda: not is_building(views))
        assert begun == ["ivf"]
    # The first write after the rest tries again.
    monkeypatch.setattr("index.views.manager._RETRY_SECONDS", 0)
    home.set_view("c", "ivf")
    wait(lambda: current(home, views).name == "ivf")


def test_views_that_are_closed_answer_and_build_nothing(home: SearchEngine, views: Views) -> None:
    home.set_view("c", "ivf")
    views.close()
    view = current(home, views)
    assert (view.name, len(view)) == ("exact", COUNT)
    assert not is_building(views)


def test_a_build_that_outlives_its_view_writes_no_snapshot(
    home: SearchEngine, views: Views, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The view that took its place holds more, and the sequence number is of that one."""
    home.set_view("c", "ivf")
    with monkeypatch.context() as slowed:
        begun, go_on = hold_up(slowed, CosineView, "build")
        old = current(home, views)
        assert begun.wait(60)
        old._inconsistent = True
        generation, _ = active(home)
        # As many as before: the number of vectors would tell that the snapshot is of another state.
        in_write(home, delete_images, "c", [make_records(1)[0].id])
        put_vectors(home, generation, make_records(COUNT + 1)[COUNT:], unit_vectors(1, DIM, seed=9))
        keys = current(home, views).keys().tolist()
        go_on.set()
        wait(lambda: not is_building(views))
    views.close()
    with closing(Views(views._folder)) as later:
        assert current(home, later).keys().tolist() == keys


NONE = "FAISS finds no GPU"
TB, GB = 1 << 40, 1 << 30


@pytest.mark.parametrize(
    ("count", "memory", "gpu", "expected", "chosen"),
    [
        (1000, TB, None, None, "exact"),
        (1_000_000, TB, None, None, "ivf"),
        (1_000_000, GB, None, None, "mapped"),
        # A view may take three quarters of what is free.
        (1_000_000, 1_476_000_000, None, None, "ivf"),
        (1_000_000, 1_475_999_999, None, None, "mapped"),
        (15_000, TB, None, None, "exact"),
        (15_001, TB, None, None, "ivf"),
        (1000, 0, None, None, "exact"),
        (1_000_000, 0, None, "exact", "exact"),
        (1_000_000, TB, None, "mapped", "mapped"),
        (1000, TB, None, "ivf", "ivf"),
        (1_000_000, TB, None, "exact", "exact"),
        # A GPU that is there is used without asking.
        (1_000_000, TB, TB, None, "gpu"),
        # A scan by the CPU is quick enough.
        (1000, TB, TB, None, "exact"),
        # The CPU ranks hits by vectors that it has in memory.
        (1_000_000, GB, TB, None, "mapped"),
        (1_000_000, TB, TB, "ivf", "ivf"),
    ],
)
def test_size_memory_and_wish_choose_the_view(
    count: int, memory: int, gpu: int | None, expected: ViewName | None, chosen: str
) -> None:
    choices = choose_view(count, 512, memory, expected, *(() if gpu is None else (gpu,)))
    assert [choice.name for choice in choices if choice.chosen] == [chosen]
    assert [choice.bytes for choice in choices] == [size * count for size in (1053, 1107, 83, 1053)]
    assert all(choice.reason for choice in choices)


def test_reasons_say_what_is_free_and_what_a_scan_reads() -> None:
    roomy, tight = ([choice.reason for choice in choose_view(1 << 20, 512, memory)] for memory in (TB, GB))
    assert roomy == ["a scan reads 1.00 GiB a query", "the fastest", "slower than ivf, which fits", NO_GPU]
    assert tight == [*["1.0 GiB of memory are free"] * 2, "vectors stay on the disk", NO_GPU]


@pytest.mark.parametrize(
    ("count", "memory", "gpu", "chosen", "reason"),
    [
        (1_000_000, TB, TB, "gpu", "chosen for this collection; takes 0.95 GiB"),
        (1000, TB, TB, "gpu", "chosen for this collection"),
        (1_000_000, TB, 3_446_494_551, "gpu", "chosen for this collection"),
        # The vectors would fit, but not twice.
        (1_000_000, TB, 3_446_494_548, "ivf", "2.41 GiB while rows are added, of which 3.21 GiB"),
        (1_000_000, TB, 0, "ivf", "of which 0.00 GiB are free"),
        (1_000_000, TB, NONE, "ivf", NONE),
        (1_000_000, GB, NONE, "mapped", NONE),
        (1000, TB, NONE, "exact", NONE),
    ],
)
def test_a_gpu_that_cannot_be_used_is_explained_and_size_and_memory_choose(
    count: int, memory: int, gpu: int | str, chosen: str, reason: str
) -> None:
    choices = choose_view(count, 512, memory, "gpu", gpu)
    assert [choice.name for choice in choices if choice.chosen] == [chosen]
    reasons = {choice.name: choice.reason for choice in choices}
    assert reason in reasons["gpu"]
    assert all(reasons.values())


FEW = 200
IMAGES, TEXTS = unit_vectors(FEW, DIM), unit_vectors(4 * FEW, DIM, seed=1)


def _embed_texts(engine: SearchEngine, generation: Generation) -> Vectors:
    with engine.home.catalogue.write() as session:
        texts = texts_without_vectors(session, generation, after=0, limit=4 * FEW)
        vectors: dict[int, dict[str, bytes]] = {}
        for text, vector in zip(texts, encode_vectors(TEXTS), strict=False):
            vectors.setdefault(text.image, {})[text.text] = vector
        add_text_vectors(session, generation, next_sequence(session, generation.collection_id), vectors)
    return TEXTS[: len(texts)]


def _same_rows(expected: Vectors, requested: Vectors) -> bool:
    # They were rounded, and come in order of key.
    nearest = (expected @ requested.T).max(axis=1)
    return len(expected) == len(requested) and bool((nearest > 0.999).all())


def test_they_are_vectors_of_what_is_not_searched(engine: SearchEngine) -> None:
    generation = put_records(engine, make_records(FEW), DIM)
    assert in_read(engine, stored_queries, generation, "images").shape == (0, DIM)
    texts = _embed_texts(engine, generation)
    assert len(texts) > 100
    with engine.home.catalogue.read() as session:
        assert _same_rows(stored_queries(session, generation, "images"), texts)
        assert _same_rows(stored_queries(session, generation, "texts"), IMAGES)


def test_a_view_that_is_built_is_measured_by_them(
    engine: SearchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = _embed_texts(engine, put_records(engine, make_records(FEW), DIM))
    built, requested = threading.Event(), list[Vectors]()

    def noted(_view: CosineView, _name: str, _spill: Path, queries: Vectors) -> bool:
        requested.append(queries)
        built.set()
        return False

    monkeypatch.setattr(CosineView, "build", noted)
    engine.set_view("c", "ivf")
    engine.search(engine.active("c"), IMAGES[0], SearchRequest())
    assert built.wait(60)
    engine.save_snapshot("c")
    assert len(requested) >= 2
    assert all(_same_rows(queries, texts) for queries in requested)


Opener = Callable[[Callable[[], bool]], Views]


@pytest.fixture
def opener(tmp_path: Path) -> Iterator[Opener]:
    """Opens the views of a process that is the main one or is not."""
    with ExitStack() as opened:
        yield lambda is_main: opened.enter_context(closing(Views(tmp_path / "views", is_main=is_main)))


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
    put_vectors(home, active(home)[0], make_records(COUNT + 5)[COUNT:], unit_vectors(5, DIM, seed=7))
    assert current(home, other).unshared == 5


def test_who_leads_next_does_what_was_left_undone(home: SearchEngine, opener: Opener) -> None:
    is_main = False
    views = opener(lambda: is_main)
    assert current(home, views).unshared == COUNT
    home.set_view("c", "ivf")
    assert current(home, views).name == "exact"
    is_main = True
    _share(home, views)
    assert current(home, views).unshared == 0
    wait(lambda: current(home, views).name == "ivf" and not is_building(views))


# Free GPU memory of which three quarters are enough for the vectors, twice, and half a GiB.
ROOM = (2 * COUNT * 2 * DIM + (1 << 29)) * 4 // 3 + 1


def _asked(engine: SearchEngine, count: int = 5) -> list[list[str]]:
    active = engine.active("c")
    return [
        [hit.id for hit in engine.search(active, query, SearchRequest(k=10)).hits]
        for query in unit_vectors(count, DIM, seed=1)
    ]


@pytest.mark.slow
def test_an_engine_scans_on_the_gpu_that_is_asked_for_also_after_a_restart(tmp_path: Path) -> None:
    engine = open_home(tmp_path / "home", gpu=CpuAsGpu())
    put_records(engine, make_records(COUNT), DIM)
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
    # The snapshot is that of an exact view, which processes without a GPU can also read.
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
    in_read(home, gpu_views.save, generation, sequence)
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
    choices = in_read(home, views.explain, active(home)[0])
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
        monkeypatch.setattr("index.views.manager._RETRY_SECONDS", rests)
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
        broken.setattr(view._gpu._indexes[0], "search", failing)
        query = unit_vectors(1, DIM, seed=1)[0]
        page = view.search(query, 10)
    assert page.keys.tolist() == reference_of(view).search(query, 10).keys.tolist()
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
    assert [entry.view.name for entry in views._entries.values() if isinstance(entry.view, CosineView)] == [
        "exact"
    ]
    views.close()

"""The benchmark's own arithmetic: true neighbours, made vectors, recall, filters, and a small run."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks.search import writes
from tests.benchmarks.search.brute_force import nearest
from tests.benchmarks.search.contestants.our_engine import OurEngine
from tests.benchmarks.search.made_vectors import MadeVectors, make_clusters, make_vectors
from tests.benchmarks.search.measuring import UNFILTERED, Point, recalls
from tests.benchmarks.search.neighbour_statistics import neighbour_statistics
from tests.benchmarks.search.report import ratios, ratios_at_our_recall, table
from tests.benchmarks.search.runs import Result
from tests.benchmarks.search.workload import K, prepare
from tests.benchmarks.search.writes import measure_beside_writes
from tests.index.samples import unit_vectors


def test_brute_force_finds_what_sorting_all_scores_finds() -> None:
    vectors, queries = unit_vectors(45_000, 8, seed=1), unit_vectors(3, 8, seed=2)
    scores = queries @ vectors.T
    order = np.argsort(-scores, axis=1)
    assert np.array_equal(nearest(vectors, queries, 7).keys, order[:, :7])
    among = np.arange(0, 45_000, 2)
    expected = [[key for key in row if key % 2 == 0][:7] for row in order.tolist()]
    found = nearest(vectors, queries, 7, among=among)
    assert found.keys.tolist() == expected
    assert np.allclose(found.scores, np.take_along_axis(scores, np.array(expected), axis=1))


@pytest.mark.slow
def test_made_vectors_lie_like_real_ones_and_not_like_noise() -> None:
    made = neighbour_statistics(make_vectors(20_000, 1, 128).vectors)
    noise = neighbour_statistics(unit_vectors(20_000, 128))
    name = "local dimension by 20 neighbours, median"
    # all-MiniLM-L6-v2's vectors of captions have 12.9.
    assert 10 < made[name] < 18 < noise[name]
    assert made["cosine of neighbour 1, percentile 50"] > 0.7 > noise["cosine of neighbour 1, percentile 50"]


@pytest.mark.parametrize("make", [make_vectors, make_clusters])
def test_made_vectors_depend_on_the_seed_alone(make: Callable[..., MadeVectors]) -> None:
    first, second, other = (make(500, 20, 64, seed) for seed in (0, 0, 1))
    assert not np.array_equal(first.vectors, other.vectors)
    for name in ("vectors", "image_queries", "text_queries", "texts"):
        made = getattr(first, name)
        assert np.array_equal(made, getattr(second, name))
        assert np.allclose(np.linalg.norm(made, axis=1), 1, atol=1e-5)
    assert (first.text_queries @ first.vectors.T).max() < 0.9999
    # A text is nearer to its own image than to others, on average.
    own = np.einsum("nd,nd->n", first.texts, first.vectors).mean()
    assert own > (first.texts @ first.vectors.T).mean() + 0.1


def test_texts_of_clusters_lie_apart_from_images_but_find_their_own() -> None:
    made = make_clusters(3000, 50, 128)
    between = made.text_queries @ made.vectors.T
    assert between.max() < np.median(made.image_queries @ made.vectors.T)
    assert (np.sort(between, axis=1)[:, -1] > between.mean() + 0.1).all()


@pytest.mark.slow
def test_a_workload_is_the_same_when_it_is_opened_again_and_its_filters_pass_their_shares(
    tmp_path: Path,
) -> None:
    workload = prepare(tmp_path, 3000, 32)
    again = prepare(tmp_path, 3000, 32)
    assert np.array_equal(workload.queries["text"], again.queries["text"])
    cases = workload.cases()
    assert cases[0].name == UNFILTERED
    expected = {"all, images", "50 %, any", "10 %, any, images", "1 %, near", "0.1 %, far", "1 %, both"}
    assert {case.name for case in cases} > expected
    near = {}
    for case in cases[2:]:
        assert len(set(case.conditions)) == len(case.conditions) == 50
        passing = [workload.passing(condition) for condition in case.conditions]
        # Two independent fields only do so on average.
        low, high = (0.5, 1.5) if case.kind == "both" else (1, 1.1)
        wanted = max(4 * K if case.kind == "both" else K, case.share * 3000)
        assert low * wanted <= np.mean([len(keys) for keys in passing]) <= high * wanted + 50
        scores = case.queries @ workload.vectors.T
        found = np.take_along_axis(scores, case.truth, axis=1)
        for place in range(0, len(case.queries), 31):
            among = passing[place % 50]
            assert np.isin(case.truth[place], among).all()
            assert np.allclose(found[place], np.sort(scores[place, among])[::-1][:K], atol=1e-5)
        near[case.name] = float(np.mean([own[passing[n % 50]].mean() for n, own in enumerate(scores)]))
    assert near["10 %, near"] > near["10 %, any"] > near["10 %, far"]


@pytest.mark.slow
def test_real_vectors_are_held_out_as_queries(tmp_path: Path) -> None:
    file = tmp_path / "real.npy"
    np.save(file, 3 * unit_vectors(40_000, 16))
    workload = prepare(tmp_path, 1, 1, file)
    assert workload.vectors.shape == (27_000, 16)
    assert np.allclose(np.linalg.norm(workload.vectors, axis=1), 1, atol=1e-5)
    np.save(file, np.zeros((10, 16)))
    with pytest.raises(SystemExit, match="at least"):
        prepare(tmp_path, 1, 1, file)


def test_recall_counts_what_is_missing() -> None:
    truth = np.array([[1, 2], [3, 4]])
    assert recalls([[2, 1], [3, 4]], truth) == [1, 1]
    assert recalls([[2, 9], []], truth) == [0.5, 0]


def test_ratios_above_one_mean_that_ours_is_better() -> None:
    def result(speed: float, cost: int, *, recall: float = 1.0) -> Result:
        point = Point(0, recall, recall, speed, 2 * speed, (1, 2), speed, 10, 100)
        slower = replace(point, single=speed / 2)
        as_sure = dict.fromkeys((UNFILTERED, "10 %"), slower) if recall == 1 else {}
        return Result("", False, cost, cost, cost, cost, (point,), point, {"10 %": point}, as_sure)

    text = ratios({"recoquest view": result(30, 2), "hnswlib": result(10, 3)}, 0.99)
    cells = [cell.strip() for cell in text.splitlines()[-1].strip("|").split("|")]
    assert cells == ["hnswlib", "recoquest view", "3.00", "3.00", *["1.50"] * 4, *["3.00, 3.00"] * 2]
    equal = ratios_at_our_recall({"recoquest view": result(30, 2), "hnswlib": result(10, 3)})
    cells = [cell.strip() for cell in equal.splitlines()[-1].strip("|").split("|")]
    assert cells == ["hnswlib", "recoquest view", "6.00", "3.00", "3.00, 3.00", "6.00, 6.00", "1 of 1"]
    never = ratios_at_our_recall({"recoquest view": result(30, 2), "hnswlib": result(10, 3, recall=0.5)})
    cells = [cell.strip() for cell in never.splitlines()[-1].strip("|").split("|")]
    assert cells == ["hnswlib", "recoquest view", "-", "-", "-", "-", "0 of 1"]
    short = ratios({"recoquest view": result(30, 2), "hnswlib": result(10, 3, recall=0.5)}, 0.99)
    assert short.splitlines()[-1].strip("|").split("|")[-1].strip() == "-"


def test_tables_are_markdown() -> None:
    assert table([("", "q/s"), ("a", "10")]) == "|   | q/s |\n| - | --: |\n| a |  10 |"


@pytest.mark.slow
def test_a_small_run_measures_ours_and_keeps_what_it_built(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.benchmarks.search", "--count", "2000", "--dim", "32"]
    command += ["--cache", str(tmp_path), "--only", "recoquest view"]
    first = subprocess.run(command, capture_output=True, text=True, check=True, timeout=280)
    assert "recall 1.000" in first.stdout
    assert "GB/s" in first.stdout
    assert (tmp_path / "tree-2000-32-2-results.png").stat().st_size > 10_000
    assert len(list((tmp_path / "tree-2000-32-2-builds").iterdir())) == 1


@pytest.mark.slow
def test_what_is_written_beside_searches_is_found_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, seconds in (("_SEARCHED_SECONDS", 0.3), ("_PERIOD", 0.02)):
        monkeypatch.setattr(writes, name, seconds)
    workload = prepare(tmp_path, 2000, 32)
    ours = OurEngine(1)
    ours.build(workload, tmp_path / "files")
    ours.open(tmp_path / "files")
    found = measure_beside_writes("recoquest", ours, workload, 0.99)
    assert {"all", "10 %, far", "0.1 %, any"} <= found.keys()
    assert all(one.writes > 3 and one.missed == 0 for one in found.values())
    assert all(one.slowest >= one.first > 0 for one in found.values())


@pytest.mark.slow
def test_whoever_ends_the_benchmark_ends_its_children(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.benchmarks.search", "--count", "2000", "--dim", "32"]
    command += ["--cache", str(tmp_path), "--only", "recoquest view"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as benchmark:
        children = Path(f"/proc/{benchmark.pid}/task/{benchmark.pid}/children")
        deadline = time.monotonic() + 120
        while not (begun := children.read_text().split()):
            assert benchmark.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        benchmark.terminate()
        assert benchmark.wait(60) == 143
    # The system ends what the benchmark had no time to.
    while any(Path("/proc", child).exists() for child in begun):
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.slow
def test_a_run_that_is_ended_shows_what_it_has_measured(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.benchmarks.search", "--count", "2000", "--dim", "32"]
    command += ["--cache", str(tmp_path), "--only", "recoquest view", "recoquest exact"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as benchmark:
        assert benchmark.stdout is not None
        for line in benchmark.stdout:
            if line.startswith("recoquest view:"):
                benchmark.terminate()
                break
        assert "How many times better ours is" in benchmark.stdout.read()
        assert benchmark.wait(60) == 143
    (kept,) = tmp_path.glob("*-results.json")
    assert list(json.loads(kept.read_text())) == ["recoquest view"]

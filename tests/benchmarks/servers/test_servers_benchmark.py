"""The benchmark's own arithmetic, its callers against an echo, and a small run of service and echo."""

import io
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks.search.workload import FILTERS, Condition, Range
from tests.benchmarks.servers import callers, report, wrk
from tests.benchmarks.servers.callers import Echo, Job, Target
from tests.benchmarks.servers.report import ECHO, ENGINE, OURS, Measured, Speed, speed_of
from tests.benchmarks.servers.wrk import Load, measured_counts, parse
from tests.benchmarks.service import answers, free_port, running, wait_until
from tests.benchmarks.throughput.load import cpu_seconds, memory_bytes
from tests.index.samples import unit_vectors

_SPEED = Speed(p50=2, p99=5, rate=500, cpu_ms=1, client_share=0.1, refused=0)
_MEASURED = Measured("wrk", 0.999, 0.9, 3, _SPEED, replace(_SPEED, rate=800), 10**8)


@pytest.fixture(scope="module")
def echo_port() -> Iterator[int]:
    port = free_port()
    with running([sys.executable, "-m", "tests.benchmarks.servers.echo", str(port)]) as server:
        wait_until(partial(answers, port, "/1"), server)
        yield port


def test_what_wrk_has_added_is_taken_away() -> None:
    random = np.random.default_rng(0)
    measured = np.bincount(random.geometric(0.01, 500), minlength=3000)
    measured[[900, 2999]] += (3, 1)
    interval = 40
    # As in wrk's source.
    shown = measured.copy()
    for value in range(2 * interval, len(shown)):
        count, other = shown[value], value - interval
        while count and other > interval:
            shown[other] += count
            other -= interval
    assert shown.sum() > measured.sum()
    assert np.array_equal(measured_counts(shown, interval, int(measured.sum())), measured)
    assert np.array_equal(measured_counts(measured, interval, int(measured.sum())), measured)


def test_times_are_read_from_what_wrk_prints() -> None:
    found = {"microseconds": 2_000_000, "requests": 4, "refused": 1, "broken": 0, "processor": 0.25}
    lines = ["Running 2s test", json.dumps({**found, "latencies": [[1000, 3], [2500, 1]]})]
    load = parse("\n".join(lines), 1)
    assert load.times.tolist() == [1, 1, 1, 2.5]
    assert (load.seconds, load.processor, load.good) == (2, 0.25, 3)
    with pytest.raises(RuntimeError, match="2 connections broke"):
        parse(json.dumps({**found, "broken": 2, "latencies": [[1000, 4]]}), 1)
    with pytest.raises(RuntimeError, match="unable to connect"):
        parse("unable to connect to 127.0.0.1:1", 1)


def test_refused_answers_count_for_nothing() -> None:
    speed = speed_of(Load(np.arange(1.0, 101), 2, 0.5, refused=20), 1.5)
    assert (speed.p50, speed.rate, speed.cpu_ms) == (50.5, 40, 1500 / 80)
    assert (speed.client_share, speed.refused) == (0.25, 0.2)
    assert speed_of(Load(np.ones(3), 1, 1), 1, same_process=True).client_share is None
    results = {"all": {OURS: replace(_MEASURED, many=speed)}}
    assert report.refusals(results) == [
        "recoquest, all: 20.0% of the answers to 16 callers refused the search."
    ]


def test_the_table_compares_each_server_with_ours_and_with_the_echo() -> None:
    fast = replace(_SPEED, p50=0.5, rate=1600)
    echo = Measured("wrk", None, None, None, fast, fast, 10**7)
    rows = report.overview({"all": {OURS: _MEASURED, ECHO: echo}, "1 %, any": {"peer": _MEASURED}})
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows.splitlines()]
    assert cells[2][:5] == ["all", OURS, "0.9990", "0.9", "3.00"]
    assert [row[-4:] for row in cells[2:]] == [
        ["1.00", "1.00", "4.00", "0.50"],
        ["0.25", "2.00", "1.00", "1.00"],
        ["-"] * 4,
    ]


def test_targets_are_met_or_missed() -> None:
    fast = replace(_SPEED, p50=0.5, rate=1600)
    echo = Measured("wrk", None, None, None, fast, fast, 10**7)
    engine = replace(_MEASURED, one=replace(_SPEED, p50=0.4))
    rows = report.targets(
        {"all": {OURS: _MEASURED, ECHO: echo, ENGINE: engine}, "1 %, any": {OURS: _MEASURED}}
    )
    (row,) = rows.splitlines()[2:]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells == ["all", "2.00", "1.90", "1.00", "1.20", "0.50", "0.60", "no, yes, no"]


def test_a_job_is_the_same_for_the_process_that_reads_it(tmp_path: Path) -> None:
    np.save(tmp_path / "queries.npy", unit_vectors(10, 4))
    conditions = tuple(Condition((Range("number", low, low + 5),)) for low in range(3))
    job = Job(Target("echo", {"port": 1}), str(tmp_path / "queries.npy"), conditions, 1.0, 4, 1, 2)
    job.write(tmp_path / "job.json")
    assert Job.read(tmp_path / "job.json") == job
    assert [condition for _, condition in job.questions] == [
        conditions[place % 3] for place in (1, 3, 5, 7, 9)
    ]


def test_callers_ask_and_measure(
    echo_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "queries.npy", unit_vectors(FILTERS + 10, 8))
    target = Target("echo", {"port": echo_port, "path": "/1234"})
    job = Job(target, str(tmp_path / "queries.npy"), (), 0.0)
    asked = callers.ask(Echo(target.options), job)
    assert (len(asked["times"]), asked["size"]) == (FILTERS + 1, 1234)
    monkeypatch.setattr(sys, "stdin", io.StringIO("begin\n"))
    found = callers.load(Echo(target.options), replace(job, seconds=0.2, callers=3))
    assert capsys.readouterr().out == '"ready"\n'
    assert len(found["times"]) > 10
    assert 0.2 <= found["seconds"] < 5
    with pytest.raises(RuntimeError):
        callers.ask(Echo({"port": echo_port, "path": "/no-number"}), job)


@pytest.mark.skipif(not wrk.installed(), reason="`apt-get install wrk` brings it")
def test_wrk_posts_the_bodies_of_a_file(echo_port: int, tmp_path: Path) -> None:
    (tmp_path / "bodies").write_text('{"a": 1}\n{"a": 2}\n')
    halves: list[float] = []
    load = wrk.load_by_wrk(
        f"http://127.0.0.1:{echo_port}/100",
        tmp_path / "bodies",
        2,
        1,
        tmp_path / "script.lua",
        lambda: halves.append(time.perf_counter()),
    )
    assert len(halves) == 1
    assert load.good == len(load.times) > 10
    assert 0 < load.processor < 2
    assert 0.9 < load.seconds < 10


@pytest.mark.slow
def test_processor_time_and_memory_include_children() -> None:
    # A child that works and ends, and one that stays and holds 50 MB.
    work = "import time\nwhile time.process_time() < 0.3: pass"
    hold = "held = bytearray(b'x') * 50_000_000; print('held', flush=True); input()"
    program = (
        "import subprocess, sys\n"
        f"subprocess.run([sys.executable, '-c', {work!r}])\n"
        f"subprocess.run([sys.executable, '-c', {hold!r}])"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "held\n"
        assert cpu_seconds(parent.pid) >= 0.3
        assert memory_bytes(parent.pid) > 50_000_000
        parent.communicate("\n")


@pytest.mark.slow
def test_a_small_run_measures_the_service_and_the_echo(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.benchmarks.servers", "--count", "2000", "--dim", "32"]
    command += ["--cache", str(tmp_path), "--only", "recoquest", "--seconds", "0.5"]
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=280)
    assert "The service and its targets" in run.stdout
    (kept,) = tmp_path.glob("*-servers.json")
    results = json.loads(kept.read_text())
    assert list(results) == ["all", "50 %, any", "10 %, any", "1 %, any", "0.1 %, any"]
    for found in results.values():
        assert list(found) == [OURS, ECHO, ENGINE]
        assert found[OURS]["recall"] > 0.99
        assert found[OURS]["many"]["cpu_ms"] > found[ECHO]["many"]["cpu_ms"] > 0
        assert found[OURS]["memory"] > found[ECHO]["memory"] > 10**6


@pytest.mark.slow
@pytest.mark.parametrize(("sent", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_run_that_is_ended_ends_its_servers_and_shows_what_it_has_measured(
    tmp_path: Path, sent: signal.Signals, status: int
) -> None:
    command = [sys.executable, "-m", "tests.benchmarks.servers", "--count", "2000", "--dim", "32"]
    command += ["--cache", str(tmp_path), "--only", "recoquest", "--seconds", "0.5"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as benchmark:
        assert benchmark.stdout is not None
        for line in benchmark.stdout:
            if line.startswith("all, recoquest:"):
                begun = Path(f"/proc/{benchmark.pid}/task/{benchmark.pid}/children").read_text().split()
                benchmark.send_signal(sent)
                break
        assert len(begun) >= 2
        assert "their % of CPU" in benchmark.stdout.read()
        assert benchmark.wait(60) == status
    assert not any(Path("/proc", child).exists() for child in begun)

"""A service outlasts a corpus of hostile requests: it answers, stays small and alive, and stops when told.

`make test-hostile` sends the whole corpus and holds the service to 200 ms for `/livez`; without
RECOQUEST_TEST_HOSTILE a part of it is sent, on a machine that may be doing other things. The service has as
many processes as it has by default.
"""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from app.settings import Settings
from tests.hostile.case import DEADLINE_S, SEARCH, Case, image_search, json_search
from tests.hostile.client import Outcome, send_all
from tests.hostile.corpus import corpus
from tests.hostile.home import make_home
from tests.hostile.images import ordinary_image
from tests.hostile.watch import Watched, memory_of_tree, watched

_WHOLE: Final = int(os.environ.get("RECOQUEST_TEST_HOSTILE", "0"))
_AT_ONCE: Final = 24
_SEED: Final = 24
_MAX_MEMORY: Final = 1_500_000_000
_MAX_LIVEZ_S: Final = 0.2 if _WHOLE else 2.0
_STOP_S: Final = 10.0
# The service and its test share the cores; the end of a process takes its time beside others.
_STOP_MARGIN_S: Final = 1.0
_SLOW_IN_SMALL: Final = () if _WHOLE else pytest.mark.slow
_RUNS: Final = [
    pytest.param("sqlite", _WHOLE or 72, marks=_SLOW_IN_SMALL),
    pytest.param("postgresql", _WHOLE or 72, marks=_SLOW_IN_SMALL),
]
_COMMAND: Final = "from app.cli.main import run; run()"


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("database", "count"), _RUNS)
def test_the_service_outlasts_hostile_requests(
    database: str, count: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = None if database == "sqlite" else request.getfixturevalue("postgresql_url")
    settings = make_home(tmp_path, url)
    with _service(settings, tmp_path / "log") as (process, port):
        idle = memory_of_tree(process.pid)
        with watched(process.pid, port) as figures:
            outcomes = asyncio.run(send_all(corpus(_SEED, count), port, _AT_ONCE))
            after = asyncio.run(send_all(_ordinary(), port, 1))
        seconds = _stop(process)
    report = _report(outcomes, figures, idle, seconds)
    sys.stdout.write(report)
    faults = [fault for outcome in (*outcomes, *after) if (fault := outcome.fault())]
    assert not faults, "\n".join([*faults, report])
    assert [outcome.status for outcome in after] == [200] * len(after), report
    assert max(figures.memory_bytes) - idle <= _MAX_MEMORY, report
    assert max(figures.livez_s) <= _MAX_LIVEZ_S, report
    assert seconds <= _STOP_S + _STOP_MARGIN_S, report
    assert '"level": "error"' not in (tmp_path / "log").read_text(), report


def _ordinary() -> list[Case]:
    """Searches that must be answered as if nothing had been."""
    image = ordinary_image(random.Random(0), "JPEG")
    return [
        Case("a text afterwards", (json_search({"text": "two dogs"}),), limit_s=DEADLINE_S),
        Case("an image afterwards", (image_search(image),), limit_s=DEADLINE_S),
    ]


@contextmanager
def _service(settings: Settings, log: Path) -> Iterator[tuple["subprocess.Popen[bytes]", int]]:
    """`recoquest serve` as it is started by hand, once it is ready."""
    environment = settings.environment_of_a_job(dict(os.environ))
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-c", _COMMAND, "serve", "--port", "0"], stderr=file, env=environment
        )
    try:
        yield process, _port_once_ready(process, log)
    finally:
        process.kill()
        process.wait()


def _port_once_ready(process: "subprocess.Popen[bytes]", log: Path) -> int:
    ready = Case("ready", (b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",))
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()
        first, ended, _ = log.read_text().partition("\n")
        if ended:
            port = int(first.rpartition(":")[2])
            if asyncio.run(send_all([ready], port, 1))[0].status == 200:
                return port
        time.sleep(0.1)
    raise AssertionError(f"the service did not become ready: {log.read_text()}")


def _stop(process: "subprocess.Popen[bytes]") -> float:
    """Ask the service to stop; the seconds that it took."""
    started = time.monotonic()
    process.send_signal(signal.SIGTERM)
    process.wait(60)
    return time.monotonic() - started


def _report(outcomes: list[Outcome], figures: Watched, idle: int, stop_s: float) -> str:
    statuses: dict[str, int] = {}
    for outcome in outcomes:
        name = "left" if outcome.case.leave else str(outcome.status)
        statuses[name] = statuses.get(name, 0) + 1
    slowest = sorted(outcomes, key=lambda outcome: -outcome.seconds)[:3]
    lines = [
        f"{len(outcomes)} cases on {SEARCH}; statuses {dict(sorted(statuses.items()))}",
        f"slowest: {', '.join(f'{o.case.name} {o.seconds:.1f} s' for o in slowest)}",
        f"memory: idle {idle / 1e6:.0f} MB, at most {(max(figures.memory_bytes) - idle) / 1e6:.0f} MB more",
        f"/livez: {len(figures.livez_s)} looks, at most {max(figures.livez_s) * 1000:.0f} ms",
        f"stopped after {stop_s:.1f} s",
    ]
    return "\n".join(lines) + "\n"

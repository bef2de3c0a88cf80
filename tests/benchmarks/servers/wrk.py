"""Searches over HTTP by wrk, a client that hardly costs anything: https://github.com/wg/wrk."""

import json
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.float64]
_GRACE_S: Final = 60.0
# `os.clock` is the processor time of the whole process; reading the bodies is no part of asking.
_SCRIPT: Final = """
local bodies, turn, threads = {}, 0, {}
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"

function setup(thread)
   table.insert(threads, thread)
end

function init(arguments)
   for line in io.lines(arguments[1]) do
      bodies[#bodies + 1] = wrk.format(nil, nil, nil, line)
   end
   prepared = os.clock()
end

function request()
   turn = turn % #bodies + 1
   return bodies[turn]
end

function done(summary, latency, requests)
   local errors = summary.errors
   io.write(string.format(
      '{"microseconds": %d, "requests": %d, "refused": %d, "broken": %d, "processor": %.6f, "latencies": [',
      summary.duration, summary.requests, errors.status,
      errors.connect + errors.read + errors.write + errors.timeout, os.clock() - threads[1]:get("prepared")
   ))
   for place = 1, #latency do
      local value, count = latency(place)
      io.write(string.format("%s[%d, %d]", place > 1 and ", " or "", value, count))
   end
   io.write("]}\\n")
end
"""


@dataclass(frozen=True, slots=True)
class Load:
    """What callers have measured.

    Attributes:
        times: Milliseconds (N,) of each answer.
        seconds: How long they asked.
        processor: Seconds of processor time that the callers took themselves.
        refused: Answers of a status over 399.
    """

    times: Times
    seconds: float
    processor: float
    refused: int = 0

    @property
    def good(self) -> int:
        """Answers that are of use."""
        return len(self.times) - self.refused


def installed() -> bool:
    """Return whether wrk is installed."""
    return shutil.which("wrk") is not None


def load_by_wrk(
    url: str, bodies: Path, callers: int, seconds: float, script: Path, meanwhile: Callable[[], None]
) -> Load:
    """Let callers post bodies in turn, one a line of a file, each its next one when it has its answer.

    Args:
        url: Where to.
        bodies: The file.
        callers: How many connections.
        seconds: For how long.
        script: A file that is made for wrk.
        meanwhile: Is called when half of the time has passed.

    Raises:
        RuntimeError: It ended with an error, or connections broke.
    """
    script.write_text(_SCRIPT)
    asked = [f"--connections={callers}", "--threads=1", f"--duration={max(1, round(seconds))}s"]
    command = ["wrk", *asked, f"--timeout={_GRACE_S:.0f}s", f"--script={script}", url, "--", str(bodies)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as wrk:
        try:
            time.sleep(seconds / 2)
            meanwhile()
            output, _ = wrk.communicate(timeout=seconds + _GRACE_S)
        finally:
            wrk.kill()
    if wrk.returncode:
        raise RuntimeError(f"wrk: {output.strip()}")
    return parse(output, callers)


def parse(output: str, callers: int) -> Load:
    """Read what the script has printed.

    Raises:
        RuntimeError: Connections broke, or nothing was answered.
    """
    line = next((line for line in output.splitlines() if line.startswith("{")), None)
    if line is None:
        raise RuntimeError(f"wrk says nothing of what it measured: {output.strip()}")
    found: dict[str, Any] = json.loads(line)
    if found["broken"] or not found["requests"]:
        raise RuntimeError(f"wrk: {found['broken']} connections broke, {found['requests']} answers came")
    counts = np.zeros(1 + max(value for value, _ in found["latencies"]), dtype=np.int64)
    for value, count in found["latencies"]:
        counts[value] = count
    interval = found["microseconds"] // max(1, found["requests"] // callers)
    counts = measured_counts(counts, interval, found["requests"])
    times = np.repeat(np.arange(len(counts)) / 1000, counts)
    return Load(times, found["microseconds"] / 1e6, found["processor"], found["refused"])


def measured_counts(counts: NDArray[np.int64], interval: int, requests: int) -> NDArray[np.int64]:
    """Return how many answers took each number of microseconds (N,), as they were measured.

    wrk assumes that callers would have asked every `interval` microseconds: for each answer that takes at
    least twice as long it adds others (`stats_correct`), each an interval shorter, down to the interval. No
    other client here does so; the longest answers have nothing added, so that all of it can be taken away
    again from there. A version that adds nothing has as many times as requests.
    """
    counts = counts.copy()
    if counts.sum() <= requests:
        return counts
    for value in range(len(counts) - 1, 2 * interval - 1, -1):
        if counts[value]:
            counts[value - interval : interval : -interval] -= counts[value]
    return counts

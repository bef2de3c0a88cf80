"""Threads that wait: none of OpenBLAS, and those of OpenMP asleep, unless the environment says otherwise."""

import os
import subprocess
import sys

import pytest

_NAMES = ("OPENBLAS_NUM_THREADS", "OMP_WAIT_POLICY", "OMP_NUM_THREADS")
_COUNT = """
import os, sys
from training.common.host import keep_waiting_threads_quiet
if sys.argv[1] == "quiet":
    keep_waiting_threads_quiet()
import numpy
import numpy.linalg
print(len(os.listdir("/proc/self/task")))
"""
_SHOW = """
from training.common.host import keep_waiting_threads_quiet
keep_waiting_threads_quiet()
import torch
import faiss
"""


def _run(script: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if name not in _NAMES}
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env={**inherited, **variables},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="OpenBLAS begins a pool on several cores only")
def test_numpy_begins_no_pool_of_threads() -> None:
    assert int(_run(_COUNT, "as it is").stdout) > 1
    assert int(_run(_COUNT, "quiet").stdout) == 1
    assert int(_run(_COUNT, "quiet", OPENBLAS_NUM_THREADS="2").stdout) == 2


@pytest.mark.slow
def test_threads_of_torch_and_faiss_wait_asleep() -> None:
    # libgomp tells its settings when it is loaded; torch and FAISS each bring one.
    shown = _run(_SHOW, OMP_DISPLAY_ENV="VERBOSE").stderr
    assert shown.count("GOMP_SPINCOUNT = '0'") == 2


@pytest.mark.slow
def test_threads_wait_as_the_environment_says() -> None:
    chosen = _run(_SHOW, OMP_DISPLAY_ENV="VERBOSE", OMP_WAIT_POLICY="ACTIVE").stderr
    assert "GOMP_SPINCOUNT = '0'" not in chosen

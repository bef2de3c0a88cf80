"""Threads that build views leave the cores to those that answer."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from index.vectors.store import lower_priority
from index.views.manager import Views

_BUILD = """
import json, os
from concurrent.futures import ThreadPoolExecutor
import faiss
import numpy as np
from index.vectors.store import use_threads, lower_priority

def build():
    use_threads(3)
    vectors = np.random.default_rng(0).random((4000, 16), dtype=np.float32)
    made = faiss.index_factory(16, "IVF16,PQ4x4fs")
    made.train(vectors)
    made.add(vectors)
    # Now: the threads of a build end with its thread.
    return sorted(os.getpriority(os.PRIO_PROCESS, int(name)) for name in os.listdir("/proc/self/task"))

print(json.dumps(ThreadPoolExecutor(1, initializer=lower_priority).submit(build).result()))
"""


def _priority() -> int:
    return os.getpriority(os.PRIO_PROCESS, 0)


def test_a_thread_that_yields_lowers_no_other() -> None:
    with ThreadPoolExecutor(1, initializer=lower_priority) as pool:
        assert pool.submit(_priority).result() == 10
    assert _priority() < 10


def test_the_threads_that_faiss_begins_for_a_build_yield_too() -> None:
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "3"}
    shown = subprocess.run(
        [sys.executable, "-c", _BUILD],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    priorities = json.loads(shown.stdout)
    assert priorities.count(10) >= 2
    assert priorities[0] < 10


def test_views_are_built_by_a_thread_that_yields(tmp_path: Path) -> None:
    views = Views(tmp_path)
    assert views._builder.submit(_priority).result() == 10
    views.close()

"""The decoding process: what it loads, and that it does not outlive the service."""

import subprocess
import sys
import time
from pathlib import Path

PATIENCE = 60.0

_LOADED = """
import sys
import app.decoding.worker
print("\\n".join(sys.modules))
"""

_PARENT = """
import time
from app.decoding.images import WORKER
from training.imaging.processes.pool import DecodingPool, PoolLimits
from training.imaging.processes.process import DecoderLimits

pool = DecodingPool(PoolLimits(WORKER, 2, 4, 60.0, DecoderLimits(1 << 29)))
while len(pool.pids) < 2:
    time.sleep(0.01)
print(*pool.pids, flush=True)
time.sleep(60)
"""


def test_it_loads_neither_torch_nor_the_service() -> None:
    command = [sys.executable, "-c", _LOADED]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE).stdout
    names = {name.split(".")[0] for name in loaded.split()}
    assert {"PIL", "numpy"} <= names
    assert not names & {"torch", "fastapi", "pydantic", "sqlalchemy", "transformers", "faiss"}


def test_it_is_killed_with_the_service() -> None:
    with subprocess.Popen([sys.executable, "-c", _PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == 2
        assert all(Path(f"/proc/{pid}").exists() for pid in pids)
        parent.kill()
    until = time.monotonic() + PATIENCE
    while any(_runs(pid) for pid in pids):
        assert time.monotonic() < until
        time.sleep(0.01)


def _runs(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False

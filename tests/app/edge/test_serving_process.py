"""The serving process: it ends when its encoder hangs for good, and its waiting threads sleep."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from app.cli.errors import HANGING
from tests.access import ADMIN_KEY
from tests.app.conftest import COLLECTION, Indexed

PATIENCE = 120.0

_START = """
import sys, threading
from pathlib import Path
from app.cli.serve import bind, url_of
from app.cli.serve import serve_on
from app.encoding import queue
from app.settings import Settings
from training.models.onnx.encoder import OnnxEncoder

embed = OnnxEncoder.embed_texts

def embed_texts(self, texts):
    if "hang" in texts:
        threading.Event().wait()
    return embed(self, texts)

OnnxEncoder.embed_texts = embed_texts
queue._SHORTEST_PASS_LIMIT_S = 0.5
taken = bind("127.0.0.1", 0)
print(url_of(taken), flush=True)
access = {"open_reading": True, "admin_key": sys.argv[2]}
settings = Settings(home=Path(sys.argv[1]), device="cpu", threads=1, encode_deadline_s=0.5, **access)
serve_on(taken, settings)
"""


@pytest.mark.slow
def test_a_process_whose_encoder_hangs_for_good_ends_with_a_reason(indexed: Indexed) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _START, str(indexed.settings.home), ADMIN_KEY],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        statuses = _search_until_it_ends(process, process.stdout.readline().strip())
        _, log = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == HANGING
    assert 504 in statuses
    *lines, last = log.splitlines()
    assert last == "recoquest: The encoder hangs: start the process again."
    assert "critical" in [json.loads(line)["level"] for line in lines]


def _search_until_it_ends(process: "subprocess.Popen[str]", address: str) -> list[int]:
    statuses: list[int] = []
    end = time.monotonic() + PATIENCE
    with httpx.Client(base_url=address, timeout=PATIENCE) as client:
        while process.poll() is None and time.monotonic() < end:
            try:
                answer = client.post(f"/v1/collections/{COLLECTION}/search", json={"text": "hang"})
                statuses.append(answer.status_code)
            except httpx.TransportError:
                time.sleep(0.1)
    return statuses


def test_serving_lets_waiting_threads_sleep(tmp_path: Path) -> None:
    # The libraries are loaded, and tell their settings, before the catalogue is found to be unusable.
    (tmp_path / "catalogue.sqlite3").mkdir()
    hidden = {"OMP_WAIT_POLICY", "OPENBLAS_NUM_THREADS"}
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    ended = subprocess.run(
        [sys.executable, "-c", "from app.cli.main import run; run()", "serve", "--port", "0"],
        env={
            **environment,
            "OMP_DISPLAY_ENV": "VERBOSE",
            "RECOQUEST_HOME": str(tmp_path),
        },
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert ended.returncode == 1, ended.stderr[-500:]
    # Of FAISS; torch, which has another, is not loaded.
    assert (
        ended.stderr.count("GOMP_SPINCOUNT = '0'")
        == ended.stderr.count("OPENMP DISPLAY ENVIRONMENT BEGIN")
        == 1
    )

"""Real processes that hold an encoder: their vectors, what they import, and that a lost one is replaced."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi import FastAPI
from structlog.testing import capture_logs

from app.encoding.pool import EncoderLoader
from app.encoding.processes import EncoderProcesses, ForkServer
from app.encoding.queue import EncoderLostError, EncodingQueue
from app.encoding.threads import ComputeThreads
from tests.app.conftest import COLLECTION, Indexed, make_bundle, serve
from tests.training.imaging.processes.decoding import is_there, wait_until
from training.common.errors import BundleError
from training.common.workers import Message, Worker, WorkerRefusedError
from training.models.bundle import WEIGHTS_FILE
from training.models.encoder import Encoder, load_encoder
from training.models.onnx import FOLDER, MANIFEST_FILE, OnnxEncoder

PATIENCE = 60.0
ONE = ComputeThreads.share(1)
# Starts processes of the bundle, one unless a number is given.
Make = Callable[..., EncoderProcesses]
TEXTS = ["a red square", "", "two blue circles above a green triangle " * 30]


# The import of torch takes seconds, and a test below has it compute where graphs are wrong.
@pytest.fixture(
    scope="module",
    params=[pytest.param(True, id="onnx"), pytest.param(False, id="torch", marks=pytest.mark.slow)],
)
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle that is computed by ONNX Runtime, or by PyTorch."""
    return make_bundle(tmp_path_factory.mktemp("encoder") / "bundle", seed=0, graphs=request.param)


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with closing(ForkServer()) as server:
        yield server


@pytest.fixture
def make_processes(server: ForkServer, bundle: Path) -> Iterator[Make]:
    """Starts processes of the bundle; they end with the test."""
    made = []

    def make(count: int = 1, limit_s: float = PATIENCE) -> EncoderProcesses:
        made.append(EncoderProcesses(server, bundle, ComputeThreads.share(count), limit_s))
        return made[-1]

    yield make
    for processes in made:
        processes.close()


def test_vectors_are_those_of_the_encoder(make_processes: Make, bundle: Path) -> None:
    processes, encoder = make_processes(), load_encoder(bundle, "cpu")
    result, expected = processes.embed_texts(TEXTS), encoder.embed_texts(TEXTS)
    np.testing.assert_allclose(result.vectors, expected.vectors, atol=1e-6)
    assert result.truncations == expected.truncations
    assert result.truncations[2] is not None
    size = processes.image_config.size
    images = np.random.default_rng(0).integers(0, 256, (3, 3, size, size), np.uint8)
    np.testing.assert_allclose(processes.embed_images(images), encoder.embed_images(images), atol=1e-6)
    assert processes.regions
    np.testing.assert_allclose(processes.embed_regions(images), encoder.embed_regions(images), atol=1e-5)
    assert processes.info == encoder.info
    assert processes.modalities == encoder.modalities


@pytest.mark.usefixtures("stops_last")
def test_as_many_passes_run_at_once_as_there_are_processes(make_processes: Make) -> None:
    processes = make_processes(2)
    for pid in processes.pids:
        os.kill(pid, signal.SIGSTOP)
    waiting = [threading.Thread(target=processes.embed_texts, args=(["a"],)) for _ in range(2)]
    for thread in waiting:
        thread.start()
    first, second = processes.pids
    os.kill(first, signal.SIGCONT)
    wait_until(lambda: sum(thread.is_alive() for thread in waiting) == 1)
    os.kill(second, signal.SIGCONT)
    for thread in waiting:
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_a_process_that_was_killed_while_idle_costs_no_query(make_processes: Make) -> None:
    processes = make_processes()
    [before] = processes.pids
    os.kill(before, signal.SIGKILL)
    # Its last thread may take a moment.
    wait_until(lambda: not Path(f"/proc/{before}").exists())
    assert len(processes.embed_texts(["a"]).vectors) == 1
    assert processes.pids != [before]


@pytest.mark.usefixtures("stops_last")
def test_a_process_that_hangs_is_killed_and_replaced(make_processes: Make) -> None:
    processes = make_processes(limit_s=1.0)
    [before] = processes.pids
    os.kill(before, signal.SIGSTOP)
    with capture_logs() as lines, pytest.raises(EncoderLostError, match="process does not answer"):
        processes.embed_texts(["a"])
    assert {"event": "an encoder's process is replaced", "reason": "wall", "log_level": "error"} in lines
    assert not is_there(before)
    processes._limit_s = PATIENCE
    assert len(processes.embed_texts(["a"]).vectors) == 1


def test_stopped_processes_are_replaced(make_processes: Make) -> None:
    processes = make_processes(2)
    before = processes.pids
    for pid in before:
        os.kill(pid, signal.SIGSTOP)
    # More than a socket holds: the order cannot even be sent.
    images = np.zeros((200, 3, 32, 32), np.uint8)
    for _ in range(2):
        with suppress(EncoderLostError):
            processes.embed_images(images)
    assert len(processes.embed_texts(["a"]).vectors) == 1
    wait_until(lambda: len(processes.pids) == 2 and not {*processes.pids} & {*before})
    assert not any(is_there(pid) for pid in before)


def test_a_stopped_fork_server_is_replaced(bundle: Path) -> None:
    with (
        closing(ForkServer()) as server,
        closing(EncoderProcesses(server, bundle, ONE, PATIENCE)) as processes,
    ):
        before = server.pid
        assert before is not None
        os.kill(before, signal.SIGSTOP)
        wait_until(lambda: not is_there(before))
        # Its processes end with it; one of them may have been asked just before.
        with suppress(EncoderLostError):
            processes.embed_texts(["a"])
        assert len(processes.embed_texts(["a"]).vectors) == 1
        assert server.pid not in (None, before)


@pytest.mark.usefixtures("stops_last")
def test_a_query_whose_process_is_killed_is_told_and_the_next_is_answered(make_processes: Make) -> None:
    processes = make_processes()
    with closing(EncodingQueue(processes)) as queue:
        [pid] = processes.pids
        os.kill(pid, signal.SIGSTOP)
        lost = queue.submit("text", "a")
        wait_until(lambda: queue.depth == 0)
        time.sleep(0.2)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(EncoderLostError, match="process has ended"):
            lost.result(PATIENCE)
        assert np.isfinite(queue.submit("text", "a").result(PATIENCE).vector).all()


def test_a_pass_that_fails_tells_why_and_keeps_its_process(make_processes: Make) -> None:
    processes = make_processes()
    before = processes.pids
    with pytest.raises(RuntimeError, match=r"^\w+: "):
        processes.embed_images(np.zeros((1, 7, 4, 4), np.uint8))
    assert len(processes.embed_texts(["a"]).vectors) == 1
    assert processes.pids == before


@pytest.mark.usefixtures("stops_last")
def test_closing_ends_the_processes_and_tells_who_waits(make_processes: Make) -> None:
    processes = make_processes(2)
    pids, told = processes.pids, list[str]()
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)

    def ask() -> None:
        try:
            processes.embed_texts(["a"])
        except EncoderLostError:
            told.append("lost")

    asking = [threading.Thread(target=ask) for _ in range(3)]
    for thread in asking:
        thread.start()
    time.sleep(0.2)
    processes.close()
    for thread in asking:
        thread.join(PATIENCE)
    assert told == ["lost"] * 3
    assert not any(is_there(pid) for pid in pids)


@pytest.mark.slow
def test_a_fork_server_that_was_killed_is_started_again(make_processes: Make, server: ForkServer) -> None:
    processes = make_processes()
    assert server.pid is not None
    [before] = processes.pids
    os.kill(server.pid, signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{before}").exists())
    assert len(processes.embed_texts(["a"]).vectors) == 1


def test_a_damaged_bundle_or_one_that_is_gone_is_told(server: ForkServer, tmp_path: Path) -> None:
    made = make_bundle(tmp_path / "bundle", seed=0)
    # The process itself finds it out, by an error of the system.
    process = server.fork({"bundle": str(made.with_name("none")), "threads": 1}, with_torch=False)
    with pytest.raises(WorkerRefusedError) as told:
        process.wait_until_ready()
    assert "none" in told.value.why
    process.end()
    content = (made / WEIGHTS_FILE).read_bytes()
    (made / WEIGHTS_FILE).write_bytes(content[: len(content) // 2])
    with pytest.raises(BundleError):
        EncoderProcesses(server, made, ComputeThreads.share(2), PATIENCE)


def test_a_fork_server_that_is_closed_starts_nothing(bundle: Path) -> None:
    server = ForkServer()
    processes = EncoderProcesses(server, bundle, ONE, PATIENCE)
    [pid] = processes.pids
    server.close()
    wait_until(lambda: not is_there(pid))
    with pytest.raises(EncoderLostError):
        processes.embed_texts(["a"])
    processes.close()


@pytest.mark.parametrize("stopped", [False, True])
def test_processes_end_with_the_one_that_has_started_them(bundle: Path, stopped: bool) -> None:
    script = (
        "import sys, time; from pathlib import Path\n"
        "from app.encoding.processes import EncoderProcesses, ForkServer\n"
        "from app.encoding.threads import ComputeThreads\n"
        f"processes = EncoderProcesses(ForkServer(), Path({str(bundle)!r}), ComputeThreads.share(1), 60.0)\n"
        "print(*processes.pids, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        try:
            assert parent.stdout is not None
            pid = int(parent.stdout.readline())
            assert is_there(pid)
            if stopped:
                os.kill(pid, signal.SIGSTOP)
        finally:
            parent.kill()
    wait_until(lambda: not is_there(pid))


def test_one_lane_and_other_devices_need_no_process(bundle: Path) -> None:
    encoder = EncoderLoader("cpu", 1, 1.0)(bundle)
    assert isinstance(encoder, OnnxEncoder if (bundle / FOLDER).exists() else Encoder)


@pytest.mark.slow
def test_a_process_whose_graphs_are_wrong_computes_by_torch(server: ForkServer, tmp_path: Path) -> None:
    made = make_bundle(tmp_path / "bundle", seed=0)
    path = made / FOLDER / MANIFEST_FILE
    manifest = json.loads(path.read_text())
    manifest["graphs"]["text"]["reference"][0][0] += 0.1
    path.write_text(json.dumps(manifest))
    with closing(EncoderProcesses(server, made, ONE, PATIENCE)) as processes:
        expected = load_encoder(made, "cpu").embed_texts(TEXTS).vectors
        np.testing.assert_allclose(processes.embed_texts(TEXTS).vectors, expected, atol=1e-6)


def test_processes_with_graphs_need_no_torch(tmp_path: Path) -> None:
    made = make_bundle(tmp_path / "bundle", seed=0)
    with closing(ForkServer()) as server, closing(EncoderProcesses(server, made, ONE, PATIENCE)) as processes:
        processes.embed_texts(["a"])
        for pid in (*processes.pids, server.pid):
            assert "libtorch" not in Path(f"/proc/{pid}/maps").read_text()


@pytest.mark.slow
def test_the_service_searches_by_processes_and_ends_them(make_indexed: Callable[..., Indexed]) -> None:
    with serve(make_indexed(), threads=2) as client:
        assert isinstance(client.app, FastAPI)
        encoders = client.app.state.services.encoders
        wait_until(lambda: bool(encoders.loaded()))
        [loaded] = encoders.loaded().values()
        assert isinstance(loaded.encoder, EncoderProcesses)
        pids = loaded.encoder.pids
        assert len(pids) == 2
        answer = client.post(f"/v1/collections/{COLLECTION}/search", json={"text": "a red square"})
        assert answer.status_code == 200
    assert not any(is_there(pid) for pid in pids)


def test_a_pass_of_torch_alone_takes_more_threads(
    server: ForkServer, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask, threads = Worker.ask, list[int]()

    def noted(self: Worker, header: Mapping[str, Any], *arguments: Any) -> Message:
        threads.append(header["threads"])
        if len(threads) == 1:
            processes.embed_texts(["beside"])
        return ask(self, header, *arguments)

    monkeypatch.setattr(Worker, "ask", noted)
    with closing(EncoderProcesses(server, bundle, ComputeThreads(2, 1, 3), PATIENCE)) as processes:
        processes.embed_texts(["alone"])
    assert threads == [3, 1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "needed", "others"),
    [
        ("app.encoding.fork_template", "onnxruntime", {"torch", "transformers", "onnx", "alembic"}),
        ("app.application", "onnxruntime", {"torch", "transformers", "onnx", "alembic"}),
        # An encoder of torch imports transformers when one of its models is built.
        ("training.models.encoder", "torch", {"transformers", "torch._dynamo"}),
    ],
)
def test_what_a_start_needs_is_imported_and_no_more(module: str, needed: str, others: set[str]) -> None:
    script = f"import sys, {module}; print(*sys.modules)"
    imported = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True
    ).stdout.split()
    assert needed in imported
    assert not others & set(imported)


@pytest.mark.slow
def test_processes_to_be_forked_share_torch_where_an_encoder_needs_it(tmp_path: Path) -> None:
    make_bundle(tmp_path / "graphs", seed=0)
    make_bundle(tmp_path / "none", seed=0, graphs=False)
    given = [("gone", "cpu"), ("graphs", "cpu"), ("none", "cuda"), ("none", "cpu")]
    script = f"""if True:
        import sys
        from pathlib import Path
        from app.encoding.processes import import_for

        for name, device in {given}:
            import_for([Path({str(tmp_path)!r}, name)], device)
            print("torch" in sys.modules)
    """
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert output.split() == ["False", "False", "False", "True"]

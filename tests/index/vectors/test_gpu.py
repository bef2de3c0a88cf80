"""The GPU that FAISS may use, and exact search on it; the names that we use are those of the real wheel."""

import ast
import inspect
import re
import subprocess
import sys
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import faiss
import numpy as np
import pytest
import torch

from index.vectors import gpu as module
from index.vectors.gpu import Gpu, GpuScan
from index.vectors.protocol import After, Vectors, unit
from tests.index.meanwhile import note_calls
from tests.index.samples import CpuAsGpu, unit_vectors
from tests.index.vectors.coding import Both, same, stored_as
from tests.needed import needed

ROOT = Path(__file__).resolve().parents[3]
DIM, COUNT = 24, 6000


@pytest.mark.parametrize(
    ("name", "count", "number"),
    [
        ("auto", 1, 0),
        ("cuda", 1, 0),
        ("auto", 2, 0),
        ("cuda:1", 2, 1),
        ("cuda:99", 2, "FAISS finds 2 GPUs, none of them number 99"),
        ("auto", 0, "FAISS is installed without GPU support"),
        ("cpu", 1, "the device is set to cpu"),
    ],
)
def test_the_number_is_that_of_a_gpu_that_faiss_finds(
    name: str, count: int, number: int | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faiss, "get_num_gpus", lambda: count)
    assert Gpu(name).number == number


def test_a_gpu_build_without_a_gpu_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faiss, "get_compile_options", lambda: "OPTIMIZE AVX2 GPU ")
    assert Gpu("auto").free() == "FAISS finds no GPU"


def test_free_memory_is_what_pytorch_measures_and_an_error_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faiss, "get_num_gpus", lambda: 2)
    gpu = Gpu("cuda:1")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda number: (number + 1000, 80_000))
    assert gpu.free() == 1001

    def lost(_: int) -> tuple[int, int]:
        raise RuntimeError("CUDA error: unspecified launch failure\nCompile with ...")

    monkeypatch.setattr(torch.cuda, "mem_get_info", lost)
    assert gpu.free() == "PyTorch can't use the GPU: CUDA error: unspecified launch failure"


def test_a_gpu_whose_trial_fails_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    # The child process doesn't find the GPU that this process is configured with.
    monkeypatch.setattr(faiss, "get_num_gpus", lambda: 1)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (1 << 40, 1 << 40))
    gpu = Gpu("cuda")
    assert gpu.free() == 1 << 40
    with pytest.raises(RuntimeError, match="FAISS is installed without GPU support"):
        gpu.check()
    message = gpu.free()
    assert isinstance(message, str)
    assert message.startswith("a trial search on the GPU failed")


def _close(count: int, seed: int) -> Vectors:
    """Vectors around a few centers, whose products with a query differ by less than float16 can tell."""
    random = np.random.default_rng(seed)
    centers = unit_vectors(7, DIM, seed)[random.integers(0, 7, count)]
    made = centers + 2e-4 * random.standard_normal((count, DIM))
    return stored_as(unit(made.astype(np.float32)))


def _on_gpu(vectors: Vectors, gpu: Gpu | None = None) -> Both:
    both = Both(DIM)
    both.append(vectors)
    assert both.view.upload(GpuScan(DIM, gpu or CpuAsGpu()))
    assert both.view.name == "gpu"
    return both


@pytest.mark.parametrize("seed", range(4))
def test_searches_are_exact_with_near_ties_filters_pages_and_removed_rows(seed: int) -> None:
    both, random = _on_gpu(_close(COUNT, seed)), np.random.default_rng(seed)
    both.remove(np.arange(0, 900, 3))
    both.append(_close(50, seed))
    queries = unit_vectors(12, DIM, seed + 100)
    queries[:6] = _close(6, seed)
    for share in (None, 0.5, 0.1, 0.01, 0.001):
        chosen = None if share is None else np.sort(random.choice(COUNT, int(share * COUNT), replace=False))
        for k in (1, 10, 300):
            results = [both.check(query, k, allowed=chosen) for query in queries]
            for one, other in zip(both.view.search_many(queries, k, allowed=chosen), results, strict=True):
                same(one, other)
            first = results[0]
            if len(first.keys) == k:
                after = After(float(first.scores[-1]), int(first.keys[-1]), k)
                both.check(queries[0], k, allowed=chosen, after=after)
    assert both.view.name == "gpu"


def test_batches_and_filters_are_searched_on_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    view = _on_gpu(unit_vectors(COUNT, DIM)).view
    assert view._gpu is not None
    # Queries and neighbors of each search on the GPU.
    requested = note_calls(
        monkeypatch, view._gpu._indexes[0], "search", lambda requested, count: (len(requested), count)
    )
    queries = unit_vectors(20, DIM, 1)
    view.search_many(queries, 10)
    assert requested == [(20, 18)]
    requested.clear()
    view.search_many(queries, 10, allowed=np.arange(0, COUNT, 2))
    view.search(queries[0], 10, allowed=np.arange(0, COUNT, 10))
    view.search(queries[0], 10, allowed=np.arange(5, COUNT))
    assert requested == [(20, 2048), (1, 2048), (1, 23)]
    requested.clear()
    # Few of the 2,048 nearest would pass.
    view.search(queries[0], 10, allowed=np.arange(0, COUNT, 500))
    view.search(queries[0], 3000)
    assert requested == []


def test_one_thread_at_a_time_uses_the_resources_of_faiss() -> None:
    gpu = CpuAsGpu()
    views = [_on_gpu(unit_vectors(COUNT, DIM, seed), gpu).view for seed in range(2)]
    queries = unit_vectors(16, DIM, 5)
    begin = threading.Barrier(8)

    def work(number: int) -> list[int]:
        begin.wait()
        view = views[number % 2]
        if number > 5:
            view.add(np.arange(COUNT, COUNT + 64), stored_as(unit_vectors(64, DIM, number)))
        return [int(view.search(query, 5).keys[0]) for query in queries]

    with ThreadPoolExecutor(8) as threads:
        # The index of `CpuAsGpu` raises where two are in it; a view that fails is scanned by the CPU.
        result = list(threads.map(work, range(8)))
    assert len(result) == 8
    assert [view.name for view in views] == ["gpu", "gpu"]


def test_a_gpu_without_memory_leaves_its_searches_to_the_cpu(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    both = _on_gpu(unit_vectors(COUNT, DIM))
    view = both.view
    assert view._gpu is not None

    def full(*_: object) -> None:
        raise RuntimeError("Error in allocMemory: StandardGpuResources: alloc fail")

    monkeypatch.setattr(view._gpu._indexes[0], "search", full)
    both.check(unit_vectors(1, DIM, 1)[0], 10)
    assert view.name == "exact"
    assert "alloc fail" in caplog.text


def _bodies(tree: ast.Module) -> dict[str, ast.ClassDef | ast.FunctionDef]:
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}


def _members(name: str, bodies: dict[str, ast.ClassDef | ast.FunctionDef]) -> set[str]:
    """Methods and properties of a class of the wheel, those of its bases included."""
    body = bodies.get(name)
    if not isinstance(body, ast.ClassDef):
        return set()
    own = {
        target.id
        for node in body.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    own |= {node.name for node in body.body if isinstance(node, ast.FunctionDef)}
    return own.union(*(_members(base.id, bodies) for base in body.bases if isinstance(base, ast.Name)))


@pytest.mark.slow
def test_the_real_wheel_has_every_name_that_we_use(tmp_path: Path) -> None:
    constraints = (ROOT / "constraints.txt").read_text("utf-8")
    pinned = re.search(r"^faiss-gpu==\S+$", constraints, re.MULTILINE)
    assert pinned is not None
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(tmp_path)]
    done = subprocess.run([*command, pinned[0]], capture_output=True, text=True, check=False)
    wheel = next(tmp_path.glob("faiss_gpu-*.whl"), None)
    wheel = needed(wheel, f"The wheel {pinned[0]}", f"reach a package registry ({done.stderr[-200:]})")
    with zipfile.ZipFile(wheel) as opened:
        source = opened.read("faiss/swigfaiss.py").decode()
        metadata = opened.read(
            f"{pinned[0].replace('-', '_').replace('==', '-')}.dist-info/METADATA"
        ).decode()
    bodies = _bodies(ast.parse(source))
    tree = ast.parse(inspect.getsource(module))
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    used = {node.attr for node in attributes if isinstance(node.value, ast.Name) and node.value.id == "faiss"}
    assert {"StandardGpuResources", "GpuIndexFlatIP", "get_num_gpus"} <= used <= set(bodies)
    # What the objects of FAISS are called in our module, and their classes.
    for ours, theirs in (("config", "GpuIndexFlatConfig"), ("resources", "StandardGpuResources")):
        members = {
            node.attr for node in attributes if isinstance(node.value, ast.Name) and node.value.id == ours
        }
        assert members
        assert members <= _members(theirs, bodies)
    nodes = [node for node in attributes if ast.unparse(node.value) == "self._indexes[0]"]
    assert {node.attr for node in nodes} == {"add", "search", "ntotal"} <= _members("GpuIndexFlatIP", bodies)
    # It brings the CUDA libraries that are pinned with it.
    required = re.findall(r"^Requires-Dist: (nvidia-[a-z0-9-]+)", metadata, re.MULTILINE)
    assert required
    assert all(f"\n{name}==" in constraints for name in required)

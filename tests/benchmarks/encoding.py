"""Encoding by ONNX Runtime beside PyTorch on this CPU: one at a time and in batches, and the time of a load.

Both are measured alone, and beside a busy neighbour: a process for each core that computes all the time. Of
images whose tower is a model of transformers, the export of this model alone, by torch.onnx.export and
computed by ONNX Runtime without recoquest, is measured in the same process: normalisation and projection are
not in it.

Run `python -m tests.benchmarks.encoding BUNDLE`, or `make benchmark-encoding ARGS=BUNDLE`.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
import onnxruntime
import typer
from numpy.typing import NDArray

from training.models.bundle import read_bundle, read_tokenizer
from training.models.onnx import FOLDER, GraphName, OnnxEncoder, graph_file

if TYPE_CHECKING:
    from training.models.encoder import Encoder

Runtime = Literal["PyTorch", "ONNX Runtime"]
_RUNTIMES: Final[tuple[Runtime, ...]] = ("PyTorch", "ONNX Runtime")
_BATCHES: Final = (1, 16)
_TEXT: Final = "two people walk along the beach with a dog in the evening"
_SECONDS: Final = 2.0
_PLAIN: Final = "plain.onnx"
_PEERS: Final = {"graph": "The graph of images alone", "plain": "The model of transformers, exported alone"}
_COMPUTE: Final = "import time\nend = time.monotonic() + 1200\nwhile time.monotonic() < end: pass"


def main() -> None:
    """Export the graphs of a bundle, and measure each runtime in a process of its own."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--threads", type=int, default=1, help="of a pass (default: 1)")
    parser.add_argument("--measure", choices=_RUNTIMES, help=argparse.SUPPRESS)
    parser.add_argument("--graphs", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure is not None:
        typer.echo(
            json.dumps(_measure(arguments.measure, arguments.bundle, arguments.graphs, arguments.threads))
        )
        return
    with tempfile.TemporaryDirectory() as graphs:
        _export(arguments.bundle, Path(graphs))
        for beside, neighbours in (("alone", 0), ("beside a busy neighbour", os.cpu_count() or 1)):
            with _busy(neighbours):
                both = {
                    name: _measured(name, arguments.bundle, Path(graphs), arguments.threads)
                    for name in _RUNTIMES
                }
            _print(beside, both)


@contextmanager
def _busy(processes: int) -> Iterator[None]:
    """Keep so many cores busy."""
    command = [sys.executable, "-c", _COMPUTE]
    running = [subprocess.Popen(command) for _ in range(processes)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def _print(beside: str, both: dict[Runtime, dict[str, float]]) -> None:
    typer.echo(f"{beside:24}{'PyTorch':>12}{'ONNX Runtime':>14}{'ratio':>8}")
    for what, torch_ms in both["PyTorch"].items():
        onnx_ms = both["ONNX Runtime"][what]
        typer.echo(f"{what:24}{torch_ms:>12.2f}{onnx_ms:>14.2f}{torch_ms / onnx_ms:>8.2f}")
    own = both["ONNX Runtime"]
    for size in _BATCHES:
        image = own[f"image, batch of {size}"]
        for peer, what in _PEERS.items():
            alone = own.get(f"{peer}, batch of {size}")
            if alone is not None:
                typer.echo(f"{what}, batch of {size}: {alone:.2f} ms, ratio {alone / image:.2f}")
    typer.echo()


def _export(bundle: Path, graphs: Path) -> None:
    from training.models.encoder import load_encoder
    from training.models.onnx_export import export_towers

    begun = time.perf_counter()
    encoder = load_encoder(bundle, "cpu")
    export_towers(encoder, graphs)
    typer.echo(f"Loaded by PyTorch and exported in {time.perf_counter() - begun:.1f} s; milliseconds:\n")
    _export_plain(encoder, graphs / _PLAIN)


def _export_plain(encoder: "Encoder", file: Path) -> None:
    """Export the model of transformers in the tower of images, where there is one."""
    import torch

    from training.models.transformers_backbones import TransformersImageBackbone

    tower = encoder.model.image
    if tower is None or not isinstance(tower.backbone, TransformersImageBackbone):
        return
    model = tower.backbone.model.eval()

    class Pooled(torch.nn.Module):
        """The pooled output (B, W) of pixels (B, 3, S, S)."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, pixels: torch.Tensor) -> torch.Tensor:
            pooled: torch.Tensor = self.model(pixels).pooler_output
            return pooled

    side = encoder.image_config.size
    with torch.inference_mode(False), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Pooled(),
            (torch.zeros(2, 3, side, side),),
            file,
            input_names=["pixels"],
            dynamic_axes={"pixels": {0: "batch"}},
            dynamo=False,
        )


def _measured(runtime: Runtime, bundle: Path, graphs: Path, threads: int) -> dict[str, float]:
    command = [sys.executable, "-m", "tests.benchmarks.encoding", str(bundle)]
    options = ["--measure", runtime, "--graphs", str(graphs), "--threads", str(threads)]
    ended = subprocess.run([*command, *options], stdout=subprocess.PIPE, check=True, timeout=600)
    measured: dict[str, float] = json.loads(ended.stdout)
    return measured


def _measure(runtime: Runtime, bundle: Path, graphs: Path, threads: int) -> dict[str, float]:
    """Milliseconds of the load with its imports, and of an item by kind and size of batch."""
    begun = time.perf_counter()
    info = read_bundle(bundle)
    if runtime == "PyTorch":
        import torch

        from training.models.encoder import Encoder, load_encoder

        torch.set_num_threads(threads)
        encoder: Encoder | OnnxEncoder = load_encoder(bundle, "cpu")
    else:
        every: tuple[GraphName, ...] = ("image", "text")
        names = [name for name in every if name in info.config.modalities]
        encoder = OnnxEncoder(info, read_tokenizer(info), graphs / FOLDER, names, threads)
    found = {"load": 1000 * (time.perf_counter() - begun)}
    side = info.preprocessing.image.size
    for size in _BATCHES:
        images = np.random.default_rng(0).integers(0, 256, (size, 3, side, side), np.uint8)
        found[f"image, batch of {size}"] = _median_ms(partial(encoder.embed_images, images)) / size
        if "text" in info.config.modalities:
            found[f"text, batch of {size}"] = _median_ms(partial(encoder.embed_texts, [_TEXT] * size)) / size
        if runtime == "ONNX Runtime":
            graph = graphs / FOLDER / graph_file("image")
            found[f"graph, batch of {size}"] = _graph_ms(graph, threads, images) / size
            if (graphs / _PLAIN).exists():
                pixels = images.astype(np.float32) / 127.5 - 1
                found[f"plain, batch of {size}"] = _graph_ms(graphs / _PLAIN, threads, pixels) / size
    return found


def _graph_ms(graph: Path, threads: int, images: NDArray[np.uint8] | NDArray[np.float32]) -> float:
    """Milliseconds of a batch (B, 3, S, S) by ONNX Runtime without recoquest."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(graph, options)
    name = session.get_inputs()[0].name
    return _median_ms(lambda: session.run(None, {name: images}))


def _median_ms(one: Callable[[], object]) -> float:
    one()
    times, end = list[float](), time.perf_counter() + _SECONDS
    while time.perf_counter() < end:
        begun = time.perf_counter()
        one()
        times.append(time.perf_counter() - begun)
    return 1000 * statistics.median(times)


if __name__ == "__main__":
    main()

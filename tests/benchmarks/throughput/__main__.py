"""Throughput of the service beside the bare encoder.

Run `python -m tests.benchmarks.throughput`. It indexes photographs, or drawn scenes, with the towers of the
recipe `reco-flickr-small`, serves them in a process of its own, and measures in turn, several times: the bare
encoder in batches in another process, and the service under a closed loop of clients, with texts and with
JPEG images of one to two megapixels. It prints figures and their ratios and judges nothing.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import numpy as np
import typer
from PIL import Image

from app.engine import open_engine
from app.generations.build import load_bulk_encoder
from app.settings import Settings
from index.ingest import ingest_manifest
from tests.benchmarks.throughput.bare import Bare
from tests.benchmarks.throughput.load import Outcome, run_load
from training.common.manifest import Manifest, read_manifest, write_manifest
from training.models.bundle import read_bundle, save_bundle
from training.models.dual_encoder import build_dual_encoder
from training.models.learned_tokenizer import build_tokenizer
from training.models.preprocessing import Preprocessing
from training.recipes.load import load_recipe
from training.samples import write_sample_data

_RECIPE: Final = "reco-flickr-small"
_COLLECTION: Final = "photos"
_RUN: Final = "from app.cli.main import run; run()"
_SIZES: Final = ((1280, 800), (1280, 960), (1600, 1000), (1600, 1200))
_FILES: Final = 24
_NOISE: Final = 4.0
_BATCH: Final = 16
_READY_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class Round:
    """One round of measurements: the bare encoder, and texts and images under load and one at a time."""

    bare: Bare
    texts: Outcome
    images: Outcome
    one_text: Outcome
    one_image: Outcome

    def figures(self) -> dict[str, float]:
        """The figures by name; ratios to the bare encoder, milliseconds of one beyond its encoding."""
        both = 1 / (1 / self.bare.images_per_s + self.bare.decode_ms / 1000)
        return {
            "bare encoder, texts/s": self.bare.texts_per_s,
            "service, texts/s": self.texts.per_second,
            "texts, service / bare": self.texts.per_second / self.bare.texts_per_s,
            "bare encoder, texts/s side by side": self.bare.texts_side_by_side_per_s,
            "bare encoder, images/s": self.bare.images_per_s,
            "bare encoder, images/s side by side": self.bare.images_side_by_side_per_s,
            "bare decoding and encoding in turn, images/s": both,
            "service, images/s": self.images.per_second,
            "images, service / bare": self.images.per_second / self.bare.images_per_s,
            "images, service / bare in turn": self.images.per_second / both,
            "bare encoder, processor ms a text": self.bare.text_cpu_ms,
            "service, processor ms a text": self.texts.cpu_ms,
            "bare encoder, processor ms an image": self.bare.image_cpu_ms,
            "service, processor ms an image": self.images.cpu_ms,
            "clients, processor ms a text": 1000 * self.texts.own_cpu_s / max(1, self.texts.statuses.total()),
            "one text, ms": _median_ms(self.one_text),
            "one text beyond encoding, ms": _median_ms(self.one_text) - self.bare.text_ms,
            "one image, ms": _median_ms(self.one_image),
            "decoding, ms": self.bare.decode_ms,
            "one image beyond both, ms": _median_ms(self.one_image)
            - self.bare.image_ms
            - self.bare.decode_ms,
        }


def main() -> None:
    """Prepare, measure in turn, and print medians with their range."""
    arguments = _arguments()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        bundle, home, queries = (folder / part for part in ("bundle", "home", "queries"))
        if not queries.exists():
            manifest = _photographs(arguments, folder)
            _make_bundle(bundle, manifest, arguments)
            _index(home, bundle, manifest)
            _write_queries(queries, manifest)
        installed = home / "bundles" / read_bundle(bundle).digest
        with _served(home, arguments.log) as (port, process):
            rounds = [
                _measure(installed, queries, port, process, arguments.clients, arguments.seconds)
                for _ in range(arguments.rounds)
            ]
    _print(rounds)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, help="manifest's folder; without it, scenes are drawn")
    parser.add_argument("--images", type=int, default=600, help="images in the collection, at most")
    parser.add_argument("--image-tower", type=Path, help="pretrained tower; without it, random weights")
    parser.add_argument("--text-tower", type=Path, help="pretrained tower; without it, random weights")
    parser.add_argument("--folder", type=Path, help="keeps what is made, and uses it when it is there")
    parser.add_argument("--clients", type=int, default=48, help="connections of the closed loop")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3, help="how often everything is measured")
    parser.add_argument("--log", type=Path, help="file for the service's log")
    return parser.parse_args()


def _photographs(arguments: argparse.Namespace, folder: Path) -> Manifest:
    if arguments.data is None:
        write_sample_data(folder / "samples", images=arguments.images, seed=0, audio=False)
        return read_manifest(folder / "samples" / "scenes")
    manifest = read_manifest(arguments.data)
    some = folder / "photographs"
    some.mkdir(parents=True)
    records = manifest.records[: arguments.images]
    for source in {Path(record.image).parts[0] for record in records}:
        (some / source).symlink_to((arguments.data / source).absolute())
    write_manifest(some, list(records))
    return read_manifest(some)


def _make_bundle(folder: Path, manifest: Manifest, arguments: argparse.Namespace) -> None:
    """A bundle of the recipe's towers with untrained heads, which cost as much as trained ones."""
    towers = {"image": arguments.image_tower, "text": arguments.text_tower}
    overrides = [f"model.{name}.pretrained={path.absolute()}" for name, path in towers.items() if path]
    recipe = load_recipe(_RECIPE, overrides)
    assert recipe.model.text is not None
    texts = [text for record in manifest.records for text in record.texts]
    tokenizer = build_tokenizer(recipe.model.text, texts)
    save_bundle(
        folder,
        name=_RECIPE,
        model=build_dual_encoder(recipe.model, tokenizer, load_pretrained=True),
        preprocessing=Preprocessing(recipe.preprocessing, tokenizer),
        metrics={},
        recipe_yaml="",
    )


def _index(home: Path, bundle: Path, manifest: Manifest) -> None:
    engine = open_engine(Settings(home=home))
    ingest_manifest(engine, _COLLECTION, load_bulk_encoder(engine.home, bundle, "cpu"), manifest)
    engine.close()


def _write_queries(folder: Path, manifest: Manifest) -> None:
    """Texts of the records, and images enlarged to one to two megapixels with the noise of a camera."""
    folder.mkdir()
    texts = list(dict.fromkeys(text for record in manifest.records for text in record.texts))[:256]
    (folder / "texts.json").write_text(json.dumps(texts), encoding="utf-8")
    random = np.random.default_rng(0)
    for number, record in enumerate(manifest.records[:_FILES]):
        with Image.open(manifest.image_path(record)) as image:
            large = image.convert("RGB").resize(_SIZES[number % len(_SIZES)], Image.Resampling.BICUBIC)
        noisy = np.asarray(large) + random.normal(0, _NOISE, (large.height, large.width, 1))
        pixels = np.clip(np.rint(noisy), 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{number:02}.jpg", quality=85)


@contextmanager
def _served(home: Path, log: Path | None) -> Iterator[tuple[int, int]]:
    """Port and process of the service on this machine; ended afterwards."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    command = [sys.executable, "-c", _RUN, "serve", "--home", str(home), "--port", str(port)]
    with (log or Path(os.devnull)).open("wb") as stream:
        server = subprocess.Popen([*command, "--device", "cpu"], stderr=stream)
        try:
            _wait_until_ready(f"http://127.0.0.1:{port}/readyz", server)
            yield port, server.pid
        finally:
            server.terminate()
            try:
                server.wait(30)
            except subprocess.TimeoutExpired:
                server.kill()


def _wait_until_ready(url: str, server: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + _READY_S
    while time.monotonic() < end and server.poll() is None:
        try:
            if httpx.get(url, timeout=10).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.2)
    raise SystemExit("The service did not become ready: give --log FILE and read why.")


def _measure(bundle: Path, queries: Path, port: int, process: int, clients: int, seconds: float) -> Round:
    address = ("127.0.0.1", port)
    texts = [_request(json={"text": text}) for text in json.loads((queries / "texts.json").read_text())]
    images = [
        _request(files={"image": (path.name, path.read_bytes(), "image/jpeg")})
        for path in sorted(queries.glob("*.jpg"))
    ]
    return Round(
        _bare(bundle, queries, seconds),
        run_load(address, process, texts, clients, seconds),
        run_load(address, process, images, clients, seconds),
        run_load(address, process, texts, 1, seconds / 2),
        run_load(address, process, images, 1, seconds / 2),
    )


def _bare(bundle: Path, queries: Path, seconds: float) -> Bare:
    module = "tests.benchmarks.throughput.bare"
    command = [sys.executable, "-m", module, str(bundle), str(queries), str(_BATCH), str(seconds)]
    ended = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=600)
    return Bare(**json.loads(ended.stdout.splitlines()[-1]))


def _request(**content: Any) -> bytes:
    request = httpx.Request("POST", f"http://127.0.0.1/v1/collections/{_COLLECTION}/search", **content)
    head = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
    return f"POST {request.url.raw_path.decode()} HTTP/1.1\r\n{head}\r\n".encode() + request.read()


def _median_ms(outcome: Outcome) -> float:
    return statistics.median(outcome.times) * 1000 if outcome.times else float("nan")


def _print(rounds: Sequence[Round]) -> None:
    statuses: Counter[int] = Counter()
    for one in rounds:
        statuses += one.texts.statuses + one.images.statuses
    chosen = sorted({(one.bare.threads, one.bare.lanes) for one in rounds})
    typer.echo(f"threads of a pass alone, and lanes under load: {chosen}")
    typer.echo(f"statuses under load: {dict(statuses)}")
    typer.echo(f"{'':46}{'median':>10}{'least':>10}{'most':>10}")
    for name in rounds[0].figures():
        values = [one.figures()[name] for one in rounds]
        typer.echo(f"{name:46}{statistics.median(values):10.2f}{min(values):10.2f}{max(values):10.2f}")


if __name__ == "__main__":
    main()

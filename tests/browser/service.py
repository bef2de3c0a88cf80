"""A real service on a free port, with a small real index; and a second site that embeds its search."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn
from fastapi import FastAPI
from PIL import Image, ImageDraw

from app.engine import open_engine
from app.settings import Settings
from index.ingest import ingest_manifest
from tests.access import OPEN
from tests.answering import answering
from tests.index.pictures import smooth_picture
from tests.training.models.tiny import tiny_model, tiny_preprocessing
from training.common.manifest import Manifest, Record, Split, read_manifest, write_manifest
from training.models.bundle import save_bundle
from training.models.encoder import Encoder, load_encoder

FILM_SIZE = (400, 300)
SHAPES = "shapes"
OTHER = "tiles"
MARKUP = '<img src="x" onerror="document.title=\'owned\'"><b>bold</b>'
_COLOURS = ("red", "green", "blue", "orange", "purple")
_FORMS = ("circle", "square", "triangle")


def write_shapes(folder: Path, *, images: int) -> Manifest:
    """Draw one shape an image; every third record has two texts, one holds markup, the fields vary."""
    (folder / "images").mkdir(parents=True)
    records = []
    for number in range(images):
        colour, form = _COLOURS[number % len(_COLOURS)], _FORMS[number % len(_FORMS)]
        name = f"images/{number}.png"
        _draw(form, colour, size=20 + number).save(folder / name)
        reports = {
            0: f"The picture shows a {form}.\nIts colour is {colour}.",
            6: "No pleural effusion.",
            9: "The nodule is unchanged since the prior film. No mass.",
        }
        more = (f"there is a {form} in the middle",) if number % 3 == 0 else ()
        split: Split = "test" if number % 4 == 0 else "train"
        records.append(
            Record(
                id=f"shape #{number}?" if number == 4 else f"shape-{number}",
                image=name,
                split=split,
                group=f"{split} patient {number // 10}",
                texts=(MARKUP if number == 5 else f"a {colour} {form}", *more),
                labels=(form,),
                report=reports.get(number),
                metadata={
                    "colour": colour,
                    "size": 20 + number,
                    "round": form == "circle",
                    "study": f"S{number:03}",
                    "acquired": 20210101 + number % 28,
                    "taken": f"2021-{1 + number % 6:02}-{1 + number % 28:02}",
                },
            )
        )
    write_manifest(folder, records)
    return read_manifest(folder)


def index_shapes(home: Path, data: Path) -> Settings:
    """Index the shapes into two collections, the second with fewer of them."""
    settings = Settings(home=home, threads=1, device="cpu", open_feedback=True, **OPEN)
    encoder = tiny_encoder(data / "bundle")
    engine = open_engine(settings)
    ingest_manifest(engine, SHAPES, encoder, write_shapes(data / SHAPES, images=60))
    ingest_manifest(engine, OTHER, encoder, write_shapes(data / OTHER, images=9))
    engine.close()
    return settings


def index_films(folder: Path) -> Settings:
    """Index films of 12 bits, as TIFF and in 16-bit PNG, with a marker in a corner."""
    grey = np.asarray(smooth_picture(3, FILM_SIZE).convert("L")).astype(np.uint16) * 12 + 300
    grey[:20, :20] = 65_535
    (folder / "data").mkdir()
    for name in ("film.tif", "film.png"):
        Image.fromarray(grey).save(folder / "data" / name)
    records = [Record(id=name, image=name, split="test", texts=(name,)) for name in ("film.tif", "film.png")]
    write_manifest(folder / "data", records)
    settings = Settings(home=folder / "home", threads=1, device="cpu", **OPEN)
    engine = open_engine(settings)
    ingest_manifest(engine, "films", tiny_encoder(folder / "bundle"), read_manifest(folder / "data"))
    engine.close()
    return settings


@contextmanager
def running(application: FastAPI) -> Iterator[str]:
    """Serve an application; gives its address, and stops it cleanly."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        server = uvicorn.Server(uvicorn.Config(application, log_level="warning", timeout_graceful_shutdown=2))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        deadline = time.monotonic() + 60
        while not server.started:
            if not thread.is_alive() or time.monotonic() > deadline:
                raise RuntimeError("The service did not start.")
            time.sleep(0.01)
        yield f"http://127.0.0.1:{port}"
        server.should_exit = True
        thread.join(timeout=10)


@contextmanager
def site(folder: Path) -> Iterator[str]:
    """Serve a folder as another origin."""

    class Files(SimpleHTTPRequestHandler):
        def __init__(self, *connection: Any) -> None:
            super().__init__(*connection, directory=str(folder))

    with answering(Files) as server:
        yield f"http://127.0.0.1:{server.server_port}"


def tiny_encoder(bundle: Path) -> Encoder:
    """A small encoder, saved as a bundle."""
    save_bundle(
        bundle,
        name="tiny",
        model=tiny_model(),
        preprocessing=tiny_preprocessing(),
        metrics={"rsum": 1.0},
        recipe_yaml="",
    )
    return load_encoder(bundle, "cpu")


def _draw(form: str, colour: str, *, size: int) -> Image.Image:
    image = Image.new("RGB", (96, 80), "white")
    draw = ImageDraw.Draw(image)
    left, top = 48 - size // 2, 40 - size // 2
    box = (left, top, left + size, top + size)
    if form == "circle":
        draw.ellipse(box, fill=colour)
    elif form == "square":
        draw.rectangle(box, fill=colour)
    else:
        draw.polygon([(left, top + size), (left + size, top + size), (48, top)], fill=colour)
    return image

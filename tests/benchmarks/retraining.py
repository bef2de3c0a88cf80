"""Simulated readers: what a model gains when it is retrained on their judgements, and without them.

Run `python -m tests.benchmarks.retraining`; without --data it draws sample scenes. A model is trained on some
images with their texts. Then the collection grows by images that have none, and readers search for them, each
by a text that its image had: of the first ten hits they like the image that the text is of, and dislike the
others among the first three. The model is retrained twice, before there are judgements and with them, as
`recoquest retrain` does, and measured before and after on images that are held out.

Every seed draws other images to train on, to search for and other random numbers. The images held out are the
same for all; what readers say of them is not learned.
"""

import argparse
import random
import tempfile
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from statistics import mean, stdev
from typing import Final

import typer

from app.cli.retrain import retrain
from app.engine import open_engine
from app.generations.schemas import ModelVerdict, Outcome
from app.settings import Settings
from index.engine import SearchEngine
from index.feedback import JudgedQuery, record_judgement
from index.ingest import ingest_manifest
from index.search.request import SearchRequest
from training.common.manifest import Manifest, Record, Split, read_manifest, write_manifest
from training.models.encoder import Encoder, load_encoder
from training.recipes.load import load_recipe
from training.samples import write_sample_data
from training.trainer.run import train

_COLLECTION: Final = "c"
_PAGE: Final = 10
_READ: Final = 3
# No model passes, so that none is embedded.
_OUT_OF_REACH: Final = 1e9


@dataclass(frozen=True)
class _Deployment:
    """A collection that has grown: its manifest, and of each image without texts those that it had."""

    manifest: Manifest
    searched: dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class _Row:
    """What a seed gave: how many hits were judged, and the held-out figure of three models."""

    liked: int
    disliked: int
    before: float
    without: float
    after: float


def main() -> None:
    """Print the held-out figure before and after retraining, without and with judgements."""
    arguments = _arguments()
    with tempfile.TemporaryDirectory() as name:
        data = arguments.data or _scenes(Path(name), arguments)
        rows = {seed: _measured(data, seed, arguments) for seed in arguments.seeds}
    _print(rows)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, help="a folder with manifest.jsonl; without it scenes are drawn")
    parser.add_argument("--images", type=int, default=600, help="with texts, that the model is trained on")
    parser.add_argument("--grown", type=int, default=600, help="without texts, that came since")
    parser.add_argument("--val", type=int, default=200)
    parser.add_argument("--held-out", type=int, default=300)
    parser.add_argument("--searches", type=int, default=2, help="for each image that came since")
    parser.add_argument("--recipe", default="demo-scenes")
    parser.add_argument("--set", action="append", default=[], help="key=value for the first training")
    parser.add_argument("--again", action="append", default=[], help="key=value for the retrainings")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--device", default="cpu")
    return parser.parse_args()


def _scenes(folder: Path, arguments: argparse.Namespace) -> Path:
    write_sample_data(folder, images=2 * (arguments.images + arguments.grown))
    return folder / "scenes"


def _measured(data: Path, seed: int, arguments: argparse.Namespace) -> _Row:
    """Train, let readers judge, and retrain before and after that."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        deployment = _deployment(folder / "collection", data, seed, arguments)
        recipe = load_recipe(arguments.recipe, [*arguments.set, f"train.seed={seed}"])
        base = train(recipe, deployment.manifest.folder, folder / "base", device=arguments.device).bundle
        engine = open_engine(Settings(home=folder / "home"))
        encoder = load_encoder(base, arguments.device)
        ingest_manifest(engine, _COLLECTION, encoder, deployment.manifest)
        without = _retrained(folder, "without", seed, arguments)
        liked, disliked = _judge(engine, encoder, deployment.searched, arguments.searches)
        after = _retrained(folder, "with", seed, arguments)
        engine.close()
    return _Row(liked, disliked, without.before, without.after, after.after)


def _deployment(folder: Path, data: Path, seed: int, arguments: argparse.Namespace) -> _Deployment:
    """Write the manifest of a collection; the files of its images lie below its folder."""
    folder.mkdir()
    (folder / "data").symlink_to(data.absolute())
    manifest = read_manifest(data)
    learned = _drawn(manifest, "train", arguments.images + arguments.grown, seed)
    first, grown = learned[: arguments.images], learned[arguments.images :]
    records = [
        *first,
        *(replace(record, texts=(), labels=(), report=None) for record in grown),
        *_drawn(manifest, "val", arguments.val, 0),
        *_drawn(manifest, "test", arguments.held_out, 0),
    ]
    write_manifest(folder, [replace(record, image=f"data/{record.image}") for record in records])
    return _Deployment(read_manifest(folder), {record.id: record.texts for record in grown})


def _drawn(manifest: Manifest, split: Split, count: int, seed: int) -> list[Record]:
    described = [record for record in manifest.records if record.split == split and record.texts]
    return random.Random(seed).sample(described, min(count, len(described)))


def _judge(
    engine: SearchEngine, encoder: Encoder, searched: dict[str, tuple[str, ...]], searches: int
) -> tuple[int, int]:
    """Search for images by texts that the collection does not have; count the liked and disliked hits."""
    active = engine.active(_COLLECTION)
    tally = {True: 0, False: 0}
    for image, texts in searched.items():
        asked = texts[:searches]
        for text, vector in zip(asked, encoder.embed_texts(asked).vectors, strict=True):
            hits = [hit.id for hit in engine.search(active, vector, SearchRequest(k=_PAGE)).hits]
            if image not in hits:
                continue
            said = dict.fromkeys(hits[:_READ], False) | {image: True}
            with engine.home.catalogue.write() as session:
                for hit, relevant in said.items():
                    record_judgement(
                        session, _COLLECTION, JudgedQuery((text,)), hit, relevant, limit=1_000_000
                    )
                    tally[relevant] += 1
    return tally[True], tally[False]


def _retrained(folder: Path, name: str, seed: int, arguments: argparse.Namespace) -> ModelVerdict:
    out = folder / name
    retrain(
        _COLLECTION,
        out,
        overrides=[*arguments.again, f"train.seed={seed + 1}"],
        gain=_OUT_OF_REACH,
        home=folder / "home",
        device=arguments.device,
    )
    outcome = Outcome.model_validate_json((out / "result.json").read_bytes())
    assert outcome.judgement is not None
    return outcome.judgement


def _print(rows: dict[int, _Row]) -> None:
    typer.echo(f"{'seed':10}{'liked':>8}{'disliked':>10}{'before':>9}{'without':>9}{'with':>9}{'gain':>8}")
    for seed, row in rows.items():
        _print_row(str(seed), row)
    liked, disliked, *figures = map(mean, zip(*map(astuple, rows.values()), strict=True))
    _print_row("mean", _Row(round(liked), round(disliked), *figures))
    if len(rows) > 1:
        error = stdev(row.after - row.before for row in rows.values()) / len(rows) ** 0.5
        typer.echo(f"The gain is over the model before; its standard error over the seeds is {error:.1f}.")


def _print_row(name: str, row: _Row) -> None:
    typer.echo(
        f"{name:10}{row.liked:8,}{row.disliked:10,}{row.before:9.1f}{row.without:9.1f}{row.after:9.1f}"
        f"{row.after - row.before:+8.1f}"
    )


if __name__ == "__main__":
    main()

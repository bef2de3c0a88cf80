"""Simulated readers: what a model gains from their judgements when it is retrained.

Run `python -m tests.benchmarks.retraining`; without --data it draws sample scenes. A collection has two texts
of each image for training, and a model is trained on it. Readers search by a third text of such images: of
the first ten hits they like the image that the text is of, and dislike the others among the first three. The
model is then retrained without these judgements and with them, on seeds of its own each, and measured on the
images that are held out, with all their texts.
"""

import argparse
import random
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Final

import typer

from app.cli.retrain import retrain
from app.engine import open_engine
from app.retraining import Judgement
from app.settings import Settings
from index.engine import SearchEngine
from index.feedback import JudgedQuery, judge
from index.ingest import ingest_manifest
from index.request import SearchRequest
from training.data.manifest import Manifest, Record, read_manifest, write_manifest
from training.data.sample import write_sample_data
from training.models.encoder import Encoder, load_encoder
from training.recipes.load import load_recipe
from training.trainer.run import train

_COLLECTION: Final = "c"
_KEPT: Final = 2
_PAGE: Final = 10
_READ: Final = 3
# No model passes, so that none is embedded.
_OUT_OF_REACH: Final = 1e9


def main() -> None:
    """Print the held-out figure before and after retraining, without and with judgements."""
    arguments = _arguments()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        manifest = _collection(folder, arguments)
        searched = {
            record.id: record.texts[_KEPT]
            for record in manifest.records
            if record.split == "train" and len(record.texts) > _KEPT
        }
        write_manifest(folder / "collection", [_shortened(record) for record in manifest.records])
        recipe = load_recipe(arguments.recipe, arguments.set)
        base = train(recipe, folder / "collection", folder / "base", device=arguments.device).bundle
        engine = open_engine(Settings(home=folder / "home"))
        encoder = load_encoder(base, arguments.device)
        ingest_manifest(engine, _COLLECTION, encoder, read_manifest(folder / "collection"))
        _report("without judgements", _figures(folder, "without", arguments))
        liked, disliked = _judge(engine, encoder, searched, arguments.searches)
        typer.echo(f"{liked:,} liked, {disliked:,} disliked")
        _report("with judgements", _figures(folder, "with", arguments))
        engine.close()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, help="a folder with manifest.jsonl; without it scenes are drawn")
    parser.add_argument("--images", type=int, default=1200, help="for training; of others a third each")
    parser.add_argument("--recipe", default="demo-scenes")
    parser.add_argument("--set", action="append", default=[], help="key=value for the first training")
    parser.add_argument("--again", action="append", default=[], help="key=value for the retraining")
    parser.add_argument("--searches", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    return parser.parse_args()


def _collection(folder: Path, arguments: argparse.Namespace) -> Manifest:
    """Some images of each split, whose files lie below the folder of the collection."""
    data: Path = arguments.data or folder / "samples" / "scenes"
    if arguments.data is None:
        write_sample_data(folder / "samples", images=2 * arguments.images)
    manifest = read_manifest(data)
    (folder / "collection").mkdir()
    (folder / "collection" / "data").symlink_to(data.absolute())
    draw = random.Random(0)
    chosen: list[Record] = []
    for split, count in (("train", 1), ("val", 3), ("test", 3)):
        records = [record for record in manifest.records if record.split == split and record.texts]
        some = draw.sample(records, min(len(records), arguments.images // count))
        chosen += [replace(record, image=f"data/{record.image}") for record in some]
    return replace(manifest, records=tuple(chosen))


def _shortened(record: Record) -> Record:
    return replace(record, texts=record.texts[:_KEPT]) if record.split == "train" else record


def _judge(engine: SearchEngine, encoder: Encoder, searched: dict[str, str], count: int) -> tuple[int, int]:
    """Search by texts that the collection does not have; return how many hits were liked and disliked."""
    active = engine.active(_COLLECTION)
    images = random.Random(1).sample(sorted(searched), min(count, len(searched)))
    vectors = encoder.embed_texts([searched[image] for image in images]).vectors
    tally = {True: 0, False: 0}
    for image, vector in zip(images, vectors, strict=True):
        hits = [hit.id for hit in engine.search(active, vector, SearchRequest(k=_PAGE)).hits]
        if image not in hits:
            continue
        said = dict.fromkeys(hits[:_READ], False) | {image: True}
        with engine.catalogue.write() as session:
            for hit, relevant in said.items():
                query = JudgedQuery(texts=(searched[image],))
                judge(session, _COLLECTION, query, hit, relevant, most=1_000_000)
                tally[relevant] += 1
    return tally[True], tally[False]


def _figures(folder: Path, name: str, arguments: argparse.Namespace) -> list[Judgement]:
    """Retrain once for each seed."""
    found = []
    for seed in range(arguments.seeds):
        out = folder / f"{name}-{seed}"
        retrain(
            _COLLECTION,
            out,
            overrides=[*arguments.again, f"train.seed={seed + 1}"],
            gain=_OUT_OF_REACH,
            home=folder / "home",
            device=arguments.device,
        )
        found.append(Judgement.model_validate_json((out / "judgement.json").read_bytes()))
    return found


def _report(name: str, found: Sequence[Judgement]) -> None:
    after = [judgement.after for judgement in found]
    spread = stdev(after) if len(after) > 1 else 0.0
    typer.echo(
        f"{name}: {found[0].metric} {found[0].before:.1f} before, {mean(after):.1f} after "
        f"(standard deviation {spread:.1f} over {len(after)} seeds), {found[0].images:,} images held out"
    )


if __name__ == "__main__":
    main()

"""Near-duplicates: how many made copies are found among other pictures, and how long that takes.

Run `python -m tests.benchmarks.near_duplicates --data FOLDER` on any manifest of real pictures. Some of its
images get one copy each, changed in one of the ways of `CHANGES` or in all of them; everything is indexed
into a folder that is thrown away, and searched as `recoquest duplicates` does. Without --bundle a tiny
encoder that nobody trained makes the vectors: the worst case of what names the pairs that are looked at.

A pair is right if one image was made of the other. Of each group of the manifest one image is taken, since
groups may hold near-duplicates; pairs of others that are found are listed, for a person to look at.
"""

import argparse
import itertools
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import numpy as np
import typer
from PIL import Image, ImageEnhance
from sqlalchemy import select

from index.catalogue import open_catalogue
from index.catalogue.collections import find_active
from index.catalogue.tables import ImageRow
from index.duplicates import find_duplicates, likely_pairs
from index.engine import SearchEngine
from index.home import Home
from index.ingest import ingest_manifest
from index.views.manager import Views
from tests.index.samples import make_bundle
from training.common.manifest import Manifest, Record, read_manifest, write_manifest
from training.models.encoder import load_encoder

# An original and its copy, by id, and pairs of any images.
Pair = tuple[str, str]
Result = TypeVar("Result")
Change = Callable[[Image.Image, np.random.Generator], Image.Image]

_COLLECTION: Final = "pictures"
_SHOWN: Final = 10
_COPY: Final = "-copy-"


def _resized(image: Image.Image, draw: np.random.Generator) -> Image.Image:
    share = draw.uniform(0.4, 0.9)
    return image.resize((round(image.width * share), round(image.height * share)))


def _cropped(image: Image.Image, draw: np.random.Generator) -> Image.Image:
    left, upper, right, lower = draw.uniform(0, 0.08, 4)
    width, height = image.size
    box = (left * width, upper * height, (1 - right) * width, (1 - lower) * height)
    return image.crop(tuple(map(round, box)))


def _toned(image: Image.Image, draw: np.random.Generator) -> Image.Image:
    brighter = ImageEnhance.Brightness(image).enhance(draw.uniform(0.6, 1.4))
    return ImageEnhance.Contrast(brighter).enhance(draw.uniform(0.7, 1.3))


def _all(image: Image.Image, draw: np.random.Generator) -> Image.Image:
    return _toned(_cropped(_resized(image, draw), draw), draw)


# Every copy is also compressed again, at a quality of 30 to 70.
CHANGES: Final[Mapping[str, Change]] = {
    "re-encoded": lambda image, _: image,
    "resized to 40-90 %": _resized,
    "up to 8 % cut off each edge": _cropped,
    "brightness and contrast": _toned,
    "all of these": _all,
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was found.

    Attributes:
        images: How many there were, copies included.
        made: The pairs that were made, by change.
        found: All pairs of images in one group.
        looked_at: Pairs that were worth a look.
        named: Those of the made pairs that the vectors alone name.
        seconds: With thumbnails to be made, and once they are there.
    """

    images: int
    made: Mapping[str, frozenset[Pair]]
    found: frozenset[Pair]
    looked_at: int
    named: frozenset[Pair]
    seconds: tuple[float, float]

    @property
    def right(self) -> frozenset[Pair]:
        """The pairs that were found and made."""
        return self.found & frozenset().union(*self.made.values())


def main() -> None:
    """Make copies, look for them, and print what was found."""
    arguments = _arguments()
    with tempfile.TemporaryDirectory() as folder:
        bundle = arguments.bundle or make_bundle(Path(folder) / "bundle").folder
        manifest = read_manifest(arguments.data)
        outcome = run(Path(folder), bundle, manifest, arguments.images, arguments.copies, arguments.seed)
    _print(outcome)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.near_duplicates", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--data", type=Path, required=True, help="a folder with manifest.jsonl")
    parser.add_argument("--bundle", type=Path, help="an encoder; without it one that nobody trained")
    parser.add_argument("--images", type=int, default=3000, help="at most so many (default: 3,000)")
    parser.add_argument("--copies", type=int, default=500, help="of so many of them (default: 500)")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def run(folder: Path, bundle: Path, manifest: Manifest, images: int, copies: int, seed: int) -> Outcome:
    """Measure on images of a manifest; files are written into a folder."""
    originals = _drawn(manifest.records, images, seed)
    made = _make_copies(folder / "data", manifest, originals, min(copies, len(originals)), seed)
    catalogue = open_catalogue(f"sqlite:///{folder / 'catalogue.db'}")
    engine = SearchEngine(Home.at(folder, catalogue))
    try:
        ingest_manifest(engine, _COLLECTION, load_encoder(bundle, "cpu"), read_manifest(folder / "data"))
        first, _ = _timed(lambda: find_duplicates(engine.home, _COLLECTION))
        again, found = _timed(lambda: find_duplicates(engine.home, _COLLECTION))
        named = _named(engine)
    finally:
        engine.close()
    total = len(originals) + sum(map(len, made.values()))
    all_made = frozenset().union(*made.values())
    pairs = frozenset(pair for group in found.groups for pair in itertools.combinations(sorted(group.ids), 2))
    return Outcome(total, made, pairs, found.looked_at, named & all_made, (first, again))


def _timed(work: Callable[[], Result]) -> tuple[float, Result]:
    started = time.perf_counter()
    result = work()
    return time.perf_counter() - started, result


def _drawn(records: Sequence[Record], count: int, seed: int) -> list[Record]:
    """Return one image of each group, and at most so many."""
    one_each = list({record.group or record.id: record for record in records}.values())
    places = np.random.default_rng(seed).permutation(len(one_each))[:count]
    return [one_each[place] for place in places.tolist()]


def _make_copies(
    folder: Path, manifest: Manifest, originals: Sequence[Record], copies: int, seed: int
) -> dict[str, frozenset[Pair]]:
    """Write a manifest of the originals and of copies of the first of them; the changes take turns."""
    (folder / "copies").mkdir(parents=True)
    records = []
    made: dict[str, set[Pair]] = {name: set() for name in CHANGES}
    draw = np.random.default_rng(seed)
    for number, record in enumerate(originals):
        path = manifest.image_path(record).resolve()
        link = folder / f"{number}{path.suffix}"
        link.symlink_to(path)
        records.append(Record(id=record.id, image=link.name, split="test"))
        if number < copies:
            name = list(CHANGES)[number % len(CHANGES)]
            copy = Record(
                id=f"{record.id}{_COPY}{number % len(CHANGES)}", image=f"copies/{number}.jpg", split="test"
            )
            with Image.open(path) as image:
                changed = CHANGES[name](image.convert("RGB"), draw)
            changed.save(folder / copy.image, "JPEG", quality=int(draw.integers(30, 71)))
            records.append(copy)
            made[name].add((record.id, copy.id))
    write_manifest(folder, records)
    return {name: frozenset(pairs) for name, pairs in made.items()}


def _named(engine: SearchEngine) -> frozenset[Pair]:
    """Return the pairs that the vectors name."""
    with engine.home.catalogue.reading() as reading:
        session = reading.session
        active = find_active(session, _COLLECTION)
        assert active is not None
        _, view = Views(engine.home.snapshots_folder).current(reading, *active)
        keys = np.sort(view.keys())
        blades, unsigned = active[0].blades, active[0].unsigned
        pairs = likely_pairs(view, keys, blades=blades, unsigned=unsigned)
        names = dict(session.execute(select(ImageRow.id, ImageRow.external_id)).all())
    return frozenset((min(pair), max(pair)) for pair in ((names[a], names[b]) for a, b in pairs))


def _print(outcome: Outcome) -> None:
    others = sorted(outcome.found - outcome.right)
    made = sum(map(len, outcome.made.values()))
    typer.echo(f"{outcome.images:,} images, {made:,} of them copies of others")
    typer.echo(f"{'':30}{'copies':>8}{'by vectors':>12}{'found':>9}")
    for name, pairs in outcome.made.items():
        shares = (len(pairs & outcome.named) / len(pairs), len(pairs & outcome.found) / len(pairs))
        typer.echo(f"{name:30}{len(pairs):8}{shares[0]:12.1%}{shares[1]:9.1%}")
    recall, precision = len(outcome.right) / made, len(outcome.right) / max(len(outcome.found), 1)
    typer.echo(f"recall {recall:.2%}, precision {precision:.2%}")
    first, again = outcome.seconds
    each = 1000 * again / max(outcome.looked_at, 1)
    typer.echo(f"{outcome.looked_at:,} pairs in {again:.1f} s: {each:.1f} ms a pair, with reading and naming")
    typer.echo(f"{first:.1f} s where thumbnails were to be made first")
    if others:
        typer.echo(f"Found, and not made: {', '.join(' = '.join(pair) for pair in others[:_SHOWN])}")


if __name__ == "__main__":
    main()

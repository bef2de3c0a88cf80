"""Simulated relevance feedback: what liking and disliking hits of the first page does for the rest.

Run `python -m tests.benchmarks.feedback`. Without --bundle it draws sample scenes, trains `demo-scenes` on
them, and measures on other scenes; with --bundle and --data on any manifest with labels, or with captions
and --words.

A search begins with a text of a random image of the class. Of the first page's hits some that belong to the
class are liked and some that do not are disliked, as a person might. Precision is then that of the
collection without the first page. The project's way is compared with the query alone, the mean of
query and liked, and Rocchio's formula with its usual weights.
"""

import argparse
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import typer
from numpy.typing import NDArray

from index.scoring import Background, draw
from index.search.request import Part, Parts, compose
from training.common.manifest import Record, read_manifest
from training.evaluation.embedding import EmbeddedManifest, embed_manifest
from training.models.encoder import load_encoder
from training.recipes.load import load_recipe
from training.samples import write_sample_data
from training.trainer.run import train

Vectors = NDArray[np.float32]
Members = NDArray[np.bool_]

_PAGE: Final = 20
_SAMPLE: Final = 2000
# A smaller class runs out of images, a larger one is found without feedback.
_MIN_CLASS: Final = 15
_MAX_SHARE: Final = 0.5
# (liked, disliked)
_GIVEN: Final = ((1, 0), (1, 3), (3, 3), (8, 8))


@dataclass(frozen=True)
class _Given:
    """What a person gave: the vector (D,) of a text, and those of examples (N, D)."""

    asked: Vectors
    liked: Vectors
    disliked: Vectors


# Makes a query vector (D,).
Method = Callable[[_Given], NDArray[np.floating]]


@dataclass(frozen=True)
class _Session:
    """One simulated search: the class, the text that it begins with, and its first page."""

    members: Members
    asked: Vectors
    page: NDArray[np.int64]


def main() -> None:
    """Measure all ways of feedback on the same searches and print a table for each amount of it."""
    arguments = _arguments()
    with tempfile.TemporaryDirectory() as folder:
        if arguments.bundle is None:
            data, bundle = _own_data(Path(folder), arguments)
        else:
            data, bundle = arguments.data, arguments.bundle
        manifest = read_manifest(data)
        if arguments.split is not None:
            manifest = manifest.split(arguments.split)
        embedded = embed_manifest(load_encoder(bundle, "cpu"), manifest)
    classes = _classes(embedded, arguments.words)
    typer.echo(f"{len(embedded.records):,} images; classes: {', '.join(classes) or 'none'}")
    if classes:
        _measure(embedded, classes, arguments.seeds)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--bundle", type=Path, help="a trained encoder; without it one is trained")
    parser.add_argument("--data", type=Path, help="a folder with manifest.jsonl; needed with --bundle")
    parser.add_argument("--split", choices=("train", "val", "test"))
    parser.add_argument("--words", default="", help="classes by words of captions, such as dog,beach")
    parser.add_argument("--images", type=int, default=600, help="sample scenes to train on and to search")
    parser.add_argument("--epochs", type=int, default=25)
    parser.add_argument("--seeds", type=int, default=10, help="searches for each class")
    arguments = parser.parse_args()
    if (arguments.bundle is None) != (arguments.data is None):
        parser.error("give both --bundle and --data, or neither")
    return arguments


def _own_data(folder: Path, arguments: argparse.Namespace) -> tuple[Path, Path]:
    """Draw scenes, train on some and return others, with the trained bundle."""
    for seed in (0, 1):
        write_sample_data(folder / str(seed), images=arguments.images, seed=seed)
    recipe = load_recipe("demo-scenes", (f"train.epochs={arguments.epochs}",))
    result = train(recipe, folder / "0" / "scenes", folder / "run", device="cpu")
    return folder / "1" / "scenes", result.bundle


def _classes(embedded: EmbeddedManifest, words: str) -> dict[str, Members]:
    """Return which images belong to each class: by label, or by a word that two of their texts have."""
    if words:
        asked = [word.strip() for word in words.split(",")]
        found = {word: np.array([_tells_of(record, word) for record in embedded.records]) for word in asked}
    else:
        labels = sorted({label for record in embedded.records for label in record.labels})
        found = {label: np.array([label in record.labels for record in embedded.records]) for label in labels}
    largest = _MAX_SHARE * len(embedded.records)
    return {name: members for name, members in found.items() if _MIN_CLASS <= members.sum() <= largest}


def _tells_of(record: Record, word: str) -> bool:
    pattern = re.compile(rf"\b{re.escape(word)}s?\b", re.IGNORECASE)
    return sum(bool(pattern.search(text)) for text in record.texts) >= 2


def _measure(embedded: EmbeddedManifest, classes: Mapping[str, Members], seeds: int) -> None:
    images = embedded.image_vectors
    sample = draw(np.arange(len(images)), _SAMPLE, 0)
    background = Background(images[sample], len(images))
    methods = _methods(background)
    for liked, disliked in _GIVEN:
        results: dict[str, list[tuple[float, float]]] = {name: [] for name in methods}
        for session, chosen in _sessions(embedded, classes, seeds):
            inside = session.page[session.members[session.page]]
            outside = session.page[~session.members[session.page]]
            if not len(inside):
                continue
            likes, dislikes = (
                images[chosen.permutation(places)[:count]]
                for places, count in ((inside, liked), (outside, disliked))
            )
            given = _Given(session.asked, likes, dislikes)
            for name, method in methods.items():
                results[name].append(_precision(session, images, method(given)))
        _print(liked, disliked, results)


def _sessions(
    embedded: EmbeddedManifest, classes: Mapping[str, Members], seeds: int
) -> Iterator[tuple[_Session, np.random.Generator]]:
    for members in classes.values():
        texts = np.flatnonzero(members[embedded.text_owner])
        for seed in range(seeds):
            chosen = np.random.default_rng(seed)
            if len(texts):
                asked = embedded.text_vectors[chosen.choice(texts)]
            else:
                asked = embedded.image_vectors[chosen.choice(np.flatnonzero(members))]
            page = np.argsort(-(embedded.image_vectors @ asked), kind="stable")[:_PAGE]
            yield _Session(members, asked, page), chosen


def _methods(background: Background) -> dict[str, Method]:
    def composed(given: _Given) -> NDArray[np.floating]:
        parts = Parts(
            queries=(Part(given.asked, "text"),),
            liked=tuple(Part(vector, "image") for vector in given.liked),
            disliked=tuple(Part(vector, "image") for vector in given.disliked),
        )
        return compose(parts, background)

    return {
        "query alone": lambda given: given.asked,
        "mean of liked": lambda given: given.liked.mean(axis=0),
        "mean of query and liked": lambda given: np.vstack((given.asked, given.liked)).mean(axis=0),
        "Rocchio (1, 0.75, 0.25)": _rocchio,
        "compose": composed,
    }


def _rocchio(given: _Given) -> NDArray[np.floating]:
    query: NDArray[np.floating] = given.asked + 0.75 * given.liked.mean(axis=0)
    if len(given.disliked):
        query -= 0.25 * given.disliked.mean(axis=0)
    return query


def _precision(session: _Session, images: Vectors, query: NDArray[np.floating]) -> tuple[float, float]:
    """Return the precision at 10 and at 50 of the collection without the first page."""
    scores = images @ query
    scores[session.page] = -np.inf
    ranked = session.members[np.argsort(-scores, kind="stable")[:50]]
    return float(ranked[:10].mean()), float(ranked.mean())


def _print(liked: int, disliked: int, results: Mapping[str, list[tuple[float, float]]]) -> None:
    """Print a row for each method: both precisions, and how much more than the mean of liked they are."""
    base = np.array(results["mean of liked"])
    typer.echo(f"\n{liked} liked, {disliked} disliked; {len(base)} searches, in percent ± standard error")
    typer.echo(f"{'':26}{'precision@10':>13}{'@50':>8}{'beyond the mean of liked @10':>31}{'@50':>14}")
    for name, values in results.items():
        found = 100 * np.array(values)
        more = found - 100 * base
        mean, error = more.mean(axis=0), more.std(axis=0, ddof=1) / np.sqrt(len(more))
        typer.echo(
            f"{name:26}{found[:, 0].mean():13.1f}{found[:, 1].mean():8.1f}"
            f"{mean[0]:+23.1f} ± {error[0]:4.1f}{mean[1]:+8.1f} ± {error[1]:4.1f}"
        )


if __name__ == "__main__":
    main()

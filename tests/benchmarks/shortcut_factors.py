"""What objectives make an encoder keep beside a shortcut: retrieval without and with it, and the factors.

Run `python -m tests.benchmarks.shortcut_factors`. It draws sample scenes and trains the small encoders of
`demo-scenes` on them with a synthetic shortcut, once with each objective and everything else alike; QUEST has
its second branch and searches by the first. Then it measures the test split without the shortcut and with it,
and how well the factors of the scenes can be read from the vectors without it.
"""

import argparse
import statistics
import tempfile
from collections.abc import Collection
from pathlib import Path

import typer

from training.common.manifest import read_manifest
from training.evaluation.embedding import embed_manifest
from training.evaluation.evaluate import EvaluationReport, measure
from training.evaluation.factors import FactorReading
from training.models.encoder import load_encoder
from training.recipes.load import load_recipe
from training.samples import write_sample_data
from training.shortcuts.config import ShortcutConfig
from training.shortcuts.shortcuts import FixedShortcuts
from training.trainer.run import train

_OBJECTIVES = {
    "infonce": ("objective={name: infonce}",),
    "reco": ("objective={name: reco, negative_weight: 0.6, reduction: balanced}",),
    "quest": ("objective={name: quest}", "model.branches={kind: mlp}"),
}
_SHARED = ("place", "thing", "colour", "count", "other", "other_colour", "relation")
_IMAGE_ONLY = ("time", "blur", "texture")
_TEXT_ONLY = ("occasion", "author")


def main() -> None:
    """Train and measure one objective after the other; print a row as soon as it is known."""
    arguments = _arguments()
    typer.echo("               RSUM  RSUM with  shared, of  shared, of   image    text")
    typer.echo("                      shortcut      images       texts    only    only")
    with tempfile.TemporaryDirectory() as folder:
        write_sample_data(Path(folder), images=arguments.images, seed=0)
        for name in _OBJECTIVES:
            plain, marked = _trained(name, Path(folder), arguments)
            _print(name, plain, marked)
    _print_chance(plain.factors)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--images", type=int, default=600, help="scenes drawn, of which 70 %% are trained on")
    parser.add_argument("--epochs", type=int, default=16)
    parser.add_argument("--shortcut", default="bits:4", help="unique, or bits:N")
    parser.add_argument("--seed", type=int, default=0, help="of the training")
    return parser.parse_args()


def _trained(
    name: str, folder: Path, arguments: argparse.Namespace
) -> tuple[EvaluationReport, EvaluationReport]:
    """An encoder of this objective on the test split, without the shortcut and with it."""
    settings = (
        *_OBJECTIVES[name],
        f"data.shortcut={arguments.shortcut}",
        f"train.epochs={arguments.epochs}",
        f"train.seed={arguments.seed}",
    )
    data = folder / "scenes"
    result = train(load_recipe("demo-scenes", settings), data, folder / name, device="cpu")
    encoder = load_encoder(result.bundle, "cpu")
    split = read_manifest(data).split("test")
    ids = ShortcutConfig.model_validate(arguments.shortcut)
    plain = embed_manifest(encoder, split, show_progress=False)
    marked = embed_manifest(
        encoder, split, marks=FixedShortcuts(ids, len(split.records)), show_progress=False
    )
    return measure(encoder, plain, factors=True), measure(encoder, marked)


def _print(name: str, plain: EvaluationReport, marked: EvaluationReport) -> None:
    images = {reading.name: reading.image for reading in plain.factors}
    texts = {reading.name: reading.text for reading in plain.factors}
    figures = (_rsum(plain), _rsum(marked))
    read = (
        _mean(images, _SHARED),
        _mean(texts, _SHARED),
        _mean(images, _IMAGE_ONLY),
        _mean(texts, _TEXT_ONLY),
    )
    typer.echo(
        f"{name:10}{figures[0]:9.1f}{figures[1]:11.1f}{read[0]:12.1f}{read[1]:12.1f}{read[2]:8.1f}{read[3]:8.1f}"
    )


def _print_chance(factors: Collection[FactorReading]) -> None:
    chance = {reading.name: reading.chance for reading in factors}
    shared, image, text = (_mean(chance, names) for names in (_SHARED, _IMAGE_ONLY, _TEXT_ONLY))
    typer.echo(f"{'chance':10}{'':9}{'':11}{shared:12.1f}{shared:12.1f}{image:8.1f}{text:8.1f}")


def _rsum(report: EvaluationReport) -> float:
    return report.metrics()["rsum"]


def _mean(readings: dict[str, float | None] | dict[str, float], names: Collection[str]) -> float:
    """Of the factors that the test split has enough of, in percent."""
    return statistics.mean(value for name in names if (value := readings.get(name)) is not None)


if __name__ == "__main__":
    main()

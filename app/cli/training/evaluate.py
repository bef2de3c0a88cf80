"""`recoquest evaluate`: measure a trained encoder on a split, beside what papers report."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from app.cli.errors import stoppable
from app.cli.options import (
    BatchSize,
    Data,
    Device,
    MaxRejected,
    SplitName,
    chosen_device,
    name_left_out,
    read_split,
)
from app.edge.console import console

if TYPE_CHECKING:
    from training.evaluation.embedding import EmbeddedManifest
    from training.evaluation.evaluate import EvaluationReport
    from training.shortcuts.config import ShortcutConfig


@stoppable("Stopped. Figures come at the end: the same command measures anew.")
def evaluate(
    bundle: Annotated[Path, typer.Argument(help="Folder of the trained encoder.")],
    data: Data,
    split: SplitName = "test",
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the report to this file.")] = None,
    plots: Annotated[Path | None, typer.Option("--plots", help="Write histograms into this folder.")] = None,
    published: Annotated[
        str | None,
        typer.Option(
            "--published",
            help="Print this data set's published figures, if they are of the same queries; without it those "
            "of the folder's name.",
        ),
    ] = None,
    label_template: Annotated[
        str | None,
        typer.Option(
            "--label-template", help="Query sentence of a label, with {labels}; without it the recipe's."
        ),
    ] = None,
    shortcut: Annotated[
        str | None,
        typer.Option(
            "--shortcut",
            help="Measure again with this synthetic shortcut in images and texts: unique, or bits:N. "
            "The encoder must read texts.",
        ),
    ] = None,
    batch_size: BatchSize = 64,
    max_rejected: MaxRejected = 1.0,
    device: Device = None,
) -> None:
    """Measure an encoder: recall with captions, precision by label, alignment, uniformity, known factors."""
    from training.common.errors import RecoquestError
    from training.common.host import keep_freed_memory
    from training.evaluation.embedding import embed_manifest
    from training.evaluation.evaluate import label_template_of, measure
    from training.models.encoder import load_encoder
    from training.shortcuts.fixed import FixedShortcuts

    keep_freed_memory()
    ids = None if shortcut is None else checked_shortcut(shortcut)
    encoder = load_encoder(bundle, chosen_device(device), for_pairs=True)
    if ids is not None and "text" not in encoder.modalities:
        raise RecoquestError(
            "This encoder was trained without texts, so none can share a shortcut: leave --shortcut out."
        )
    manifest = read_split(data, split, max_rejected)
    embedded = embed_manifest(encoder, manifest, batch_size=batch_size)
    name_left_out(embedded.skipped)
    if embedded.sounds is not None:
        name_left_out(embedded.sounds.skipped)
    recipe = encoder.info.recipe if encoder.info is not None else ""
    template = label_template or label_template_of(recipe)
    report = measure(encoder, embedded, label_template=template, factors=True)
    title = f"{bundle} on {data.name}, {split}"
    print_report(report, title=title)
    _print_published(report, embedded, published or data.resolve().name)
    if ids is not None:
        marked = embed_manifest(
            encoder,
            manifest,
            batch_size=batch_size,
            marks=FixedShortcuts(ids, len(manifest.records)),
        )
        beside = measure(encoder, marked, label_template=template, factors=True)
        print_report(beside, title=f"{title}, with the shortcut {shortcut} in images and texts")
        report = report.model_copy(update={"with_shortcut": beside})
    if json_file is not None:
        write_json(report, json_file)
    if plots is not None:
        for picture in write_plots(embedded, plots):
            typer.echo(f"Wrote {picture}", err=True)


def checked_shortcut(words: str) -> "ShortcutConfig":
    """The shortcut that the words name, or a usage error."""
    from training.shortcuts.config import MAX_BITS, ShortcutConfig

    try:
        return ShortcutConfig.model_validate(words)
    except ValueError:
        raise typer.BadParameter(
            f"{words!r} is not unique, or bits:N with N from 0 to {MAX_BITS}.", param_hint="--shortcut"
        ) from None


def print_report(report: "EvaluationReport", *, title: str) -> None:
    """Show the figures as tables."""
    screen = console()
    sounds = f", {report.sounds:,} sounds" if report.sounds else ""
    screen.print(f"{title}: {report.images:,} images, {report.texts:,} texts{sounds}", soft_wrap=True)
    if report.skipped:
        screen.print(f"{report.skipped:,} images could not be read and are left out.")
    if report.skipped_sounds:
        screen.print(f"{report.skipped_sounds:,} sounds could not be read and are left out.")
    if report.truncated:
        screen.print(f"{report.truncated:,} texts are longer than the encoder reads and were cut.")
    for table in (
        _caption_table(report),
        _between_table(report),
        _label_table(report),
        _geometry_table(report),
        _factor_table(report),
    ):
        if table is not None:
            screen.print(table)


def write_json(report: "EvaluationReport", path: Path) -> None:
    """Write the report, whole or not at all."""
    from training.common.atomic import atomic_file

    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as file:
        file.write(report.model_dump_json(indent=2).encode() + b"\n")


def write_plots(embedded: "EmbeddedManifest", folder: Path) -> list[Path]:
    """Write a histogram of cosines for texts and one for labels, where the data have them."""
    from training.evaluation.geometry import label_cosines, text_image_cosines
    from training.evaluation.histograms import save_histogram

    folder.mkdir(parents=True, exist_ok=True)
    written = []
    if embedded.texts and embedded.pair_scores is None:
        cosines = text_image_cosines(embedded.image_vectors, embedded.text_vectors, embedded.text_matches())
        written.append(folder / "text-image-cosines.png")
        save_histogram(cosines, written[-1], title="Cosine of a text and an image")
    labels = [record.labels for record in embedded.records]
    if any(labels):
        written.append(folder / "label-cosines.png")
        save_histogram(
            label_cosines(embedded.image_vectors, labels),
            written[-1],
            title="Cosine of two images",
            paired="a label in common",
            unpaired="none in common",
        )
    return written


def _caption_table(report: "EvaluationReport") -> Table | None:
    captions = report.captions
    if captions is None:
        return None
    table = Table("Search", "Queries", *(f"R@{k}" for k in captions.image_recall), "Median rank")
    for name, queries, recall, median in (
        ("text to image", captions.texts, captions.image_recall, captions.image_median_rank),
        ("image to text", captions.images, captions.text_recall, captions.text_median_rank),
    ):
        table.add_row(name, f"{queries:,}", *map(_percent, recall.values()), f"{median:g}")
    table.caption = f"RSUM {captions.rsum:.1f}"
    return table


def _between_table(report: "EvaluationReport") -> Table | None:
    if not report.between:
        return None
    table = Table("Search", "Queries", *(f"R@{k}" for k in report.between[0].recall), "Median rank")
    for search in report.between:
        recall = map(_percent, search.recall.values())
        table.add_row(search.name, f"{search.queries:,}", *recall, f"{search.median_rank:g}")
    return table


def _label_table(report: "EvaluationReport") -> Table | None:
    labels = report.labels
    if labels is None:
        return None
    directions = {"image to image": labels.image_to_image, "text to image": labels.text_to_image}
    found = {name: measured for name, measured in directions.items() if measured is not None}
    depths = next(iter(found.values())).precision
    table = Table("Search by label", "Queries", *(f"P@{k}" for k in depths), "Chance")
    for name, measured in found.items():
        row = map(_percent, measured.precision.values())
        table.add_row(name, f"{measured.queries:,}", *row, _percent(measured.chance))
        table.add_row("  at best", "", *map(_percent, measured.ceiling.values()), "", style="dim")
    mean = "" if labels.mean is None else f"Mean {_percent(labels.mean)}; "
    table.caption = f"{mean}-: fewer candidates than k"
    return table


def _geometry_table(report: "EvaluationReport") -> Table | None:
    shape = report.geometry
    if shape is None:
        return None
    table = Table("Cosine of pairs", "Of others", "Alignment", "Uniformity, images", "Uniformity, texts")
    figures = (
        shape.paired_cosine,
        shape.unpaired_cosine,
        shape.alignment,
        shape.image_uniformity,
        shape.text_uniformity,
    )
    table.add_row(*("-" if figure is None else f"{figure:.3f}" for figure in figures))
    return table


def _factor_table(report: "EvaluationReport") -> Table | None:
    if not report.factors:
        return None
    columns = {
        "Of images": [reading.image for reading in report.factors],
        "Of texts": [reading.text for reading in report.factors],
        "Of sounds": [reading.audio for reading in report.factors],
    }
    shown = {name: read for name, read in columns.items() if any(value is not None for value in read)}
    table = Table("Read from vectors", "Values", *shown, "Chance")
    for row, reading in enumerate(report.factors):
        read = [_percent(values[row]) for values in shown.values()]
        table.add_row(reading.name.replace("_", " "), f"{reading.values}", *read, _percent(reading.chance))
    table.caption = "Balanced accuracy of a linear probe"
    return table


def _print_published(report: "EvaluationReport", embedded: "EmbeddedManifest", dataset: str) -> None:
    """Show the published figures of a data set where they are of the same queries; else say why not."""
    from training.evaluation.published import published_results

    known = published_results(dataset)
    if known is None:
        return
    protocol, results = known
    texts = frozenset(len(record.texts) for record in embedded.records)
    if (reason := protocol.differs(report, texts)) is not None:
        typer.echo(f"Published figures on {dataset} are not shown: {reason}.")
        return
    ours: Mapping[str, float | None] = {
        **report.metrics(),
        "mean": None if report.labels is None else report.labels.mean,
    }
    columns = list(dict.fromkeys(name for result in results for name in result.figures))
    table = Table(f"On {dataset}", *(name.replace("_", " ") for name in columns), "Note")
    table.add_row("this encoder", *(_percent(ours.get(name)) for name in columns), "", style="bold")
    for result in results:
        table.add_row(result.method, *(_percent(result.figures.get(name)) for name in columns), result.note)
    table.caption = "As published; splits, towers and pretraining differ"
    console().print(table)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"

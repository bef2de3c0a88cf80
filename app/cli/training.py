"""`recoquest train`, `classify`, `language-model`, `bundle` and `evaluate`: make encoders."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.table import Table

from app.cli.errors import resumable, stoppable
from app.cli.options import (
    BatchSize,
    Data,
    Device,
    MaxRejected,
    Processes,
    Resume,
    Sets,
    SplitName,
    Track,
    chosen_device,
    name_left_out,
    read_split,
)
from training.common.atomic import write_text
from training.common.errors import RecipeError, RecoquestError
from training.common.host import keep_freed_memory
from training.common.progress import PROGRESS_VARIABLE, console

if TYPE_CHECKING:
    from training.classification.recipe import ImageRecipe
    from training.classification.run import Scores
    from training.evaluation.embedding import EmbeddedManifest
    from training.evaluation.evaluate import EvaluationReport, LabelRetrieval
    from training.evaluation.factors import FactorReading
    from training.papers.glue import TextRecipe
    from training.papers.language_models import LanguageModelRecipe
    from training.papers.vqa import QuestionRecipe
    from training.trainer.module_task import TaskResult

# Set by torchrun in the processes that it starts.
_UNDER_TORCHRUN: Final = "TORCHELASTIC_RUN_ID"
ResultsFolder = Annotated[
    Path, typer.Option("--out", help="Folder of the run; results go to OUT/results.json.")
]


def train(
    recipe: Annotated[str, typer.Argument(help="Name of a recipe (see `recoquest recipes`) or a YAML file.")],
    data: Data,
    out: Annotated[Path, typer.Option(help="Folder of the run; the encoder goes to OUT/bundle.")],
    overrides: Sets = None,
    heads: Annotated[
        bool,
        typer.Option(
            "--heads",
            help="Train heads alone: pretrained towers stay as they are and encode each image and text once.",
        ),
    ] = False,
    resume: Resume = False,
    device: Device = None,
    processes: Processes = 1,
    track: Track = None,
) -> None:
    """Train encoders of images and of texts or sounds in one space, and write the best as a bundle.

    Started by torchrun, as on several machines, it is one of the processes that train together.
    """
    from training.recipes.load import load_recipe

    overrides = [*(overrides or []), *(["train.heads=true"] if heads else [])]
    if _UNDER_TORCHRUN not in os.environ:
        # A wrong setting is reported before the imports, which take seconds.
        _check_kind(recipe)
        load_recipe(recipe, overrides)
        chosen_device(device)
    from app.jobs.launch import process_count, train_together, without_copies
    from training.trainer.opening import RunOptions
    from training.trainer.run import train as run_training
    from training.trainer.run_state.processes import one_voice

    with one_voice() as speaks, resumable(out):
        _check_kind(recipe)
        resolved = load_recipe(recipe, overrides)
        if PROGRESS_VARIABLE in os.environ:
            # A worker has started this process.
            resolved = without_copies(resolved, overrides)
        device_name = chosen_device(device)
        count = process_count(processes, resolved, out, resume=resume, device=device_name)
        if count > 1:
            options = RunOptions(out, resume=resume, device=device_name, trackers=tuple(track or ()))
            train_together(count, "train", recipe, data, overrides, options)
            return
        result = run_training(resolved, data, out, resume=resume, device=device_name, trackers=track or ())
    if not speaks:
        return
    if result.rejections:
        typer.echo(f"Left out: {result.rejected:,} lines or images that cannot be used.")
    for name, value in result.metrics.items():
        typer.echo(f"{name.replace('_', ' ')}: {value:.4g}")
    typer.echo(f"Encoder: {result.bundle}")


def _check_kind(recipe: str) -> None:
    """Refuse the name of a recipe that another command trains.

    Raises:
        RecipeError: It is one of these.
    """
    from training.papers.load import classification_recipes, language_model_recipes
    from training.recipes.library import shipped

    if shipped().has(recipe):
        return
    if classification_recipes().has(recipe):
        raise RecipeError(f"{recipe} is a recipe of classification: give it to `recoquest classify`.")
    if language_model_recipes().has(recipe):
        raise RecipeError(f"{recipe} is a language model: give it to `recoquest language-model`.")


def classify(
    recipe: Annotated[str, typer.Argument(help="Recipe, such as glue-bert-base::rte, or a YAML file.")],
    data: Annotated[
        Path, typer.Option(help="Folder with manifest.jsonl; of a GLUE task, with train.tsv; of VQA v2.")
    ],
    out: ResultsFolder,
    overrides: Sets = None,
    resume: Resume = False,
    device: Device = None,
    processes: Processes = 1,
    track: Track = None,
) -> None:
    """Train a classifier: labels of images behind an encoder, a task of GLUE, or answers to questions.

    Started by torchrun, as on several machines, it is one of the processes that train together.
    """
    from app.jobs.launch import process_count, train_together
    from training.classification.recipe import ImageRecipe
    from training.classification.run import classify_images
    from training.papers.glue import classify_texts
    from training.papers.load import load_classification_recipe
    from training.papers.vqa import QuestionRecipe, answer_questions
    from training.trainer.opening import RunOptions
    from training.trainer.run_state.processes import one_voice

    with one_voice() as speaks, resumable(out):
        resolved = load_classification_recipe(recipe, overrides or [])
        options = RunOptions(out, resume=resume, device=chosen_device(device), trackers=tuple(track or ()))
        count = process_count(processes, resolved, out, resume=resume, device=options.device)
        if count > 1:
            train_together(count, "classify", recipe, data, overrides or [], options)
            return
        if isinstance(resolved, ImageRecipe):
            result: TaskResult[Any] = classify_images(resolved, data, options)
            tables = [_label_table(result.test), _image_table(resolved, result.test)]
            units = "lines or images"
        elif isinstance(resolved, QuestionRecipe):
            result = answer_questions(resolved, data, options)
            tables, units = [_answer_table(resolved, result.test)], "questions or images"
        else:
            result = classify_texts(resolved, data, options)
            tables, units = [_text_table(resolved, result.test)], "lines"
    if speaks:
        _tell(result, units, *tables)


def _tell(result: "TaskResult[Any]", units: str, *tables: Table) -> None:
    if result.rejected:
        typer.echo(f"Left out: {result.rejected:,} {units} that cannot be used.")
    console().print(*tables, sep="\n")
    typer.echo(f"Checkpoint: {result.checkpoint}")


def _label_table(scores: "Scores") -> Table:
    """The AUC of each label in percent; of those that cannot be measured, a dash."""
    table = Table("Label", "Images with it", "AUC")
    for label, count in scores.positives.items():
        area = scores.auc.get(label)
        table.add_row(label, f"{count:,} of {scores.images:,}", "–" if area is None else f"{100 * area:.2f}")
    return table


def _image_table(recipe: "ImageRecipe", scores: "Scores") -> Table:
    """The mean in percent, next to the rows of ReCo's table 2 for the same protocol and share."""
    from training.classification.recipe import published

    table = Table("Test images", "Mean AUC", "Labels")
    table.add_row("this run", f"{100 * scores.mean:.2f}", str(len(scores.auc)))
    for row, figure in published(recipe).items():
        table.add_row(f"published, {row}", f"{figure:.2f}", "8")
    return table


def _text_table(recipe: "TextRecipe", metrics: Mapping[str, float]) -> Table:
    """The figures in percent, next to those that RECLAIM's paper has for the same share of the data."""
    from training.papers.glue import published

    table = Table("Development set", *metrics)
    table.add_row("this run", *(f"{100 * value:.2f}" for value in metrics.values()))
    for row, figures in published(recipe).items():
        cells = [f"{figures[name]:.2f}" if name in figures else "" for name in metrics]
        table.add_row(f"published, {row}", *cells)
    return table


def _answer_table(recipe: "QuestionRecipe", metrics: Mapping[str, float]) -> Table:
    """The score in percent, next to RECLAIM's table 11."""
    from training.papers.vqa import published

    table = Table("Validation questions", "VQA score", "Best that the answers allow")
    table.add_row("this run", *(f"{100 * value:.2f}" for value in metrics.values()))
    for row, figure in published(recipe).items():
        table.add_row(f"published, {row}", f"{figure:.2f}")
    return table


def language_model(
    recipe: Annotated[str, typer.Argument(help="Recipe, such as lm-ptb-vae, or a YAML file.")],
    data: Annotated[Path, typer.Option(help="Folder with train.txt, valid.txt and test.txt.")],
    out: ResultsFolder,
    overrides: Sets = None,
    resume: Resume = False,
    device: Device = None,
    processes: Processes = 1,
    track: Track = None,
) -> None:
    """Train a variational language model of sentences and measure it: ELBO, perplexity, use of its codes.

    Started by torchrun, as on several machines, it is one of the processes that train together.
    """
    from app.jobs.launch import process_count, train_together
    from training.papers.language_models import train_language_model
    from training.papers.load import load_language_recipe
    from training.trainer.opening import RunOptions
    from training.trainer.run_state.processes import one_voice

    with one_voice() as speaks, resumable(out):
        resolved = load_language_recipe(recipe, overrides or [])
        options = RunOptions(out, resume=resume, device=chosen_device(device), trackers=tuple(track or ()))
        count = process_count(processes, resolved, out, resume=resume, device=options.device)
        if count > 1:
            train_together(count, "language-model", recipe, data, overrides or [], options)
            return
        result = train_language_model(resolved, data, options)
    if speaks:
        _tell(result, "lines", _language_table(resolved, result.test))


def _language_table(recipe: "LanguageModelRecipe", figures: dict[str, float]) -> Table:
    """The figures of the test sentences, next to those of the paper's row that the recipe is named after."""
    from training.papers.language_models import published

    table = Table("Test sentences", *(name.replace("_", " ") for name in figures))
    for label, values in {"this run": figures, "published": published(recipe)}.items():
        if values:
            cells = {
                name: f"{figure:.{0 if name == 'active_units' else 2}f}" for name, figure in values.items()
            }
            table.add_row(label, *(cells.get(name, "") for name in figures))
    return table


def bundle(
    source: Annotated[
        str, typer.Argument(help="Folder in the format of Hugging Face, or a name on its hub.")
    ],
    out: Annotated[Path, typer.Option(help="Folder of the bundle.")],
    name: Annotated[
        str | None, typer.Option(help="Name of the bundle; default: the last part of SOURCE.")
    ] = None,
    image_size: Annotated[
        int | None,
        typer.Option(min=1, help="Side of images in pixels, for an encoder that takes any, as DINOv2."),
    ] = None,
) -> None:
    """Make a bundle of a published encoder, such as CLIP, SigLIP or DINOv2, as it is.

    Its preprocessing comes from its own files. The bundle is written only if its vectors are those of
    transformers, or of open_clip's definition: a cosine of .9999 for eight images and eight texts. It has
    graphs of its towers, by which ONNX Runtime encodes on a CPU.
    """
    from training.conversion.convert import convert
    from training.models.onnx_export import ExportError, export_towers

    with stoppable("Stopped. No bundle was written."):
        made = convert(source, out, name=name or Path(source).resolve().name, size=image_size)
    written, parity = made.bundle, made.parity
    image, text = written.preprocessing.image, written.preprocessing.text
    typer.echo(f"Images: {image.size} x {image.size} pixels ({image.resize}, {image.filter})")
    if written.config.text is None:
        typer.echo("Texts: none, for it has no text tower or no tokenizer")
    else:
        typer.echo(f"Texts: up to {text.max_tokens} tokens")
    texts = "" if parity.texts is None else f", {parity.texts:.6f} for texts"
    typer.echo(f"Lowest cosine with {parity.original}: {parity.images:.6f} for images{texts}")
    try:
        with stoppable(
            f"Stopped. The bundle {out} is complete; its ONNX graphs are made when it is indexed."
        ):
            export_towers(made.encoder, out)
    except ExportError as error:
        typer.echo(f"On a CPU by PyTorch, which takes longer: {error}")
    else:
        typer.echo("On a CPU by ONNX Runtime")
    typer.echo(f"Encoder: {out}")


@stoppable("Stopped. Figures come at the end: the same command measures again.")
def evaluate(
    bundle: Annotated[Path, typer.Argument(help="Folder of the trained encoder.")],
    data: Data,
    split: SplitName = "test",
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the report to this file.")] = None,
    plots: Annotated[Path | None, typer.Option(help="Write histograms into this folder.")] = None,
    published: Annotated[
        str | None,
        typer.Option(
            help="Print this data set's published figures, if they are of the same queries; without it those "
            "of the folder's name."
        ),
    ] = None,
    label_template: Annotated[
        str | None, typer.Option(help="Query sentence of a label, with {labels}; without it the recipe's.")
    ] = None,
    shortcut: Annotated[
        str | None,
        typer.Option(
            help="Measure again with this synthetic shortcut in images and texts: unique, or bits:N. "
            "The encoder must read texts."
        ),
    ] = None,
    batch_size: BatchSize = 64,
    max_rejected: MaxRejected = 1.0,
    device: Device = None,
) -> None:
    """Measure an encoder: recall with captions, precision by label, alignment, uniformity, known factors."""
    from training.evaluation.embedding import embed_manifest
    from training.evaluation.evaluate import label_template_of, measure
    from training.models.encoder import load_encoder
    from training.shortcuts.config import MAX_BITS, ShortcutConfig
    from training.shortcuts.shortcuts import FixedShortcuts

    keep_freed_memory()
    try:
        ids = None if shortcut is None else ShortcutConfig.model_validate(shortcut)
    except ValueError:
        raise typer.BadParameter(
            f"{shortcut!r} is not unique, or bits:N with N from 0 to {MAX_BITS}.", param_hint="--shortcut"
        ) from None
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
            encoder, manifest, batch_size=batch_size, marks=FixedShortcuts(ids, len(manifest.records))
        )
        with_shortcut = measure(encoder, marked, label_template=template, factors=True)
        print_report(with_shortcut, title=f"{title}, with the shortcut {shortcut} in images and texts")
        report = report.model_copy(update={"with_shortcut": with_shortcut})
    if json_file is not None:
        json_file.parent.mkdir(parents=True, exist_ok=True)
        write_text(json_file, report.model_dump_json(indent=2))
    if plots is not None:
        _write_plots(embedded, plots)


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
    for table in _tables(report):
        screen.print(table)


def _write_plots(embedded: "EmbeddedManifest", folder: Path) -> None:
    """Write a histogram of cosines for texts and one for labels, where the data have them."""
    from training.evaluation.geometry import label_cosines, save_histogram, text_image_cosines

    folder.mkdir(parents=True, exist_ok=True)
    if embedded.texts and embedded.pair_scores is None:
        cosines = text_image_cosines(embedded.image_vectors, embedded.text_vectors, embedded.text_matches())
        picture = folder / "text-image-cosines.png"
        save_histogram(cosines, picture, title="Cosine of a text and an image")
        typer.echo(f"Wrote {picture}", err=True)
    labels = [record.labels for record in embedded.records]
    if any(labels):
        picture = folder / "label-cosines.png"
        save_histogram(
            label_cosines(embedded.image_vectors, labels),
            picture,
            title="Cosine of two images",
            paired="a label in common",
            unpaired="none in common",
        )
        typer.echo(f"Wrote {picture}", err=True)


def _tables(report: "EvaluationReport") -> Iterator[Table]:
    if (captions := report.captions) is not None:
        table = Table("Search", "Queries", *(f"R@{k}" for k in captions.image_recall), "Median rank")
        for name, queries, recall, median in (
            ("text to image", captions.texts, captions.image_recall, captions.image_median_rank),
            ("image to text", captions.images, captions.text_recall, captions.text_median_rank),
        ):
            table.add_row(name, f"{queries:,}", *map(_percent, recall.values()), f"{median:g}")
        table.caption = f"RSUM {captions.rsum:.1f}"
        yield table
    if report.between:
        table = Table("Search", "Queries", *(f"R@{k}" for k in report.between[0].recall), "Median rank")
        for search in report.between:
            shares = map(_percent, search.recall.values())
            table.add_row(search.name, f"{search.queries:,}", *shares, f"{search.median_rank:g}")
        yield table
    if report.labels is not None:
        yield _label_search_table(report.labels)
    if (shape := report.geometry) is not None:
        table = Table("Cosine of pairs", "Of others", "Alignment", "Uniformity, images", "Uniformity, texts")
        figures = (
            shape.paired_cosine,
            shape.unpaired_cosine,
            shape.alignment,
            shape.image_uniformity,
            shape.text_uniformity,
        )
        table.add_row(*("-" if figure is None else f"{figure:.3f}" for figure in figures))
        yield table
    if report.factors:
        yield _factor_table(report.factors)


def _label_search_table(labels: "LabelRetrieval") -> Table:
    directions = {"image to image": labels.image_to_image, "text to image": labels.text_to_image}
    measurements = {name: measured for name, measured in directions.items() if measured is not None}
    depths = next(iter(measurements.values())).precision
    table = Table("Search by label", "Queries", *(f"P@{k}" for k in depths), "Chance")
    for name, measured in measurements.items():
        row = map(_percent, measured.precision.values())
        table.add_row(name, f"{measured.queries:,}", *row, _percent(measured.chance))
        table.add_row("  at best", "", *map(_percent, measured.ceiling.values()), "", style="dim")
    mean = "" if labels.mean is None else f"Mean {_percent(labels.mean)}; "
    table.caption = f"{mean}-: fewer candidates than k"
    return table


def _factor_table(factors: "Sequence[FactorReading]") -> Table:
    columns = {
        "Of images": [reading.image for reading in factors],
        "Of texts": [reading.text for reading in factors],
        "Of sounds": [reading.audio for reading in factors],
    }
    shown = {name: read for name, read in columns.items() if any(value is not None for value in read)}
    table = Table("Read from vectors", "Values", *shown, "Chance")
    for row, reading in enumerate(factors):
        read = [_percent(values[row]) for values in shown.values()]
        table.add_row(reading.name.replace("_", " "), f"{reading.values}", *read, _percent(reading.chance))
    table.caption = "Balanced accuracy of a linear probe"
    return table


def _print_published(report: "EvaluationReport", embedded: "EmbeddedManifest", dataset: str) -> None:
    """Show the published figures of a data set where they are of the same queries; else say why not."""
    from training.evaluation.published import published_results

    published_table = published_results(dataset)
    if published_table is None:
        return
    protocol, results = published_table
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

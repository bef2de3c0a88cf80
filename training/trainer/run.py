"""One training run from a recipe and a data folder to a bundle."""

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import yaml

from training.common.host import keep_freed_memory
from training.common.manifest import Rejection, Rejections, read_manifest
from training.models.bundle import read_bundle, save_bundle
from training.models.config import Modality
from training.recipes.load import dump_recipe, parse_recipe
from training.recipes.pretrained_preprocessing import with_pretrained_preprocessing
from training.recipes.schema import Recipe
from training.trainer.assembly import Assembled, Assembly, Splits
from training.trainer.optimisation.lora import merge_lora
from training.trainer.requirements import used_modalities, warn_of_slow_random_towers
from training.trainer.run_state.devices import build_fabric, pin_threads
from training.trainer.run_state.folder import RunFolder
from training.trainer.run_state.processes import check_divisible, joined
from training.trainer.run_state.tracking import TrackerName, check_trackers
from training.trainer.setup import heads_alone, thaw_random_towers, usable_records, with_temperature
from training.trainer.validation import check_comparable, check_selectable

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TrainResult:
    """What a finished run leaves.

    Attributes:
        bundle: Folder of the encoder with the best validation figure.
        metrics: Of that encoder on the validation split; empty without one.
        rejections: Lines and images of the data that were left out.
    """

    bundle: Path
    metrics: dict[str, float]
    rejections: tuple[Rejection, ...] = ()

    @property
    def rejected(self) -> int:
        """How many lines and images were left out."""
        return len(self.rejections)


def train(
    recipe: Recipe,
    data: Path,
    out: Path,
    *,
    resume: bool = False,
    device: str = "auto",
    show_progress: bool = True,
    trackers: Sequence[TrackerName] = (),
) -> TrainResult:
    """Train a dual encoder and write its bundle.

    `out` then holds `bundle/`, `checkpoints/last.pt` and `best.pt`, `metrics.jsonl`, `tensorboard/` and the
    resolved `recipe.yaml`. The global random generators are seeded.

    Started by torchrun, all processes train one model together, each on its share of every batch; the first
    one writes and reports, and all return the same.

    Args:
        recipe: What to train and how.
        data: Folder of a manifest.
        out: Empty or new; with `resume`, the folder of a run with the same recipe and data.
        resume: Go on from the last checkpoint; on a CPU the result is bit-equal to a run that never stopped.
        device: A torch device; "auto": the GPU if there is one, else the CPU.
        show_progress: Show bars on standard error.
        trackers: Follow the run beside TensorBoard.

    Raises:
        RecoquestError: Something that the user can mend; the message says what.
    """
    check_trackers(trackers)
    keep_freed_memory()
    pin_threads()
    recipe = _prepared(recipe)
    modalities = used_modalities(recipe)
    folder = RunFolder(out)
    fabric = build_fabric(recipe.train.precision, device)
    with ExitStack() as resources:
        processes = resources.enter_context(joined(fabric))
        check_divisible(recipe.train.batch_size, processes.count)
        checkpoint = folder.checkpoint_to_resume(recipe, processes, resume=resume)
        if checkpoint is not None:
            recipe = recipe.settled_as(parse_recipe(yaml.safe_load(checkpoint.recipe), "The run's recipe"))
        manifest = read_manifest(data, max_rejected=recipe.data.max_rejected)
        splits = Splits(usable_records(recipe, manifest.split("train"), modalities), manifest.split("val"))
        _check_validation(recipe, splits, modalities)
        shown = show_progress and processes.leads
        assembly = Assembly(recipe, modalities, fabric, processes, folder, resources)
        parts = assembly.assemble(splits, checkpoint, show_progress=shown)
        parts.loop.start(checkpoint)
        parts.loop.run(show_progress=shown, trackers=trackers)
        metrics = processes.of_leader(_write_bundle(parts, folder) if processes.leads else {})
        broken = parts.broken.joined(processes.gathered(parts.broken))
    validation = parts.problem.validation
    unreadable = Rejections.of(
        () if validation is None else validation.broken.values(),
        0 if validation is None else len(validation.manifest.records),
        f"the validation split of {data}",
    )
    return TrainResult(folder.bundle, metrics, _report(manifest.rejections, broken, unreadable))


def _prepared(recipe: Recipe) -> Recipe:
    """The recipe with the model of the bundle it starts from, or with nothing frozen in random towers.

    Preprocessing and temperature that the towers bring are written out in it, so what a run leaves says which
    they were.
    """
    if recipe.train.start_from is not None:
        start = read_bundle(Path(recipe.train.start_from))
        recipe = recipe.model_copy(update={"model": start.config, "preprocessing": start.preprocessing})
        return with_temperature(heads_alone(recipe) if recipe.train.heads else recipe, start)
    if recipe.train.heads:
        recipe = heads_alone(recipe)
    recipe = thaw_random_towers(with_pretrained_preprocessing(recipe))
    warn_of_slow_random_towers(recipe)
    return with_temperature(recipe)


def _check_validation(recipe: Recipe, splits: Splits, modalities: frozenset[Modality]) -> None:
    if splits.val.records:
        by_pairs = recipe.model.pair_attention is not None
        check_selectable(recipe.train.select_by, splits.val, modalities, by_pairs=by_pairs)
        if recipe.train.select_by == "loss" and recipe.objective.compares_items:
            check_comparable(usable_records(recipe, splits.val, modalities), modalities)
    else:
        logger.warning("There is no validation split: the bundle will hold the last weights, not the best.")


def _write_bundle(parts: Assembled, folder: RunFolder) -> dict[str, float]:
    """Write the bundle of the chosen checkpoint, and give the figures that belong to its weights."""
    recipe = parts.problem.recipe
    metrics = parts.loop.load_best().metrics if parts.loop.metrics else {}
    if recipe.train.lora is not None:
        merge_lora(parts.model)
    save_bundle(
        folder.bundle,
        name=recipe.name,
        model=parts.model,
        preprocessing=parts.preprocessing,
        metrics=metrics,
        recipe_yaml=dump_recipe(recipe),
    )
    return metrics


def _report(*parts: Rejections) -> tuple[Rejection, ...]:
    for rejections in parts:
        if rejections.items:
            logger.warning("%s", rejections.summary())
    return tuple(item for rejections in parts for item in rejections.items)

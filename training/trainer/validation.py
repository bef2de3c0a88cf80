"""The figures of the validation split, and which of two is better."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import torch
from torch import Tensor

from training.common.distributed import mean_over_processes
from training.common.errors import RecipeError
from training.common.manifest import Manifest, Record, Rejection
from training.data.pairs import differ_in_texts
from training.evaluation.embedding import embed_manifest
from training.evaluation.evaluate import measure
from training.models.config import Modality
from training.models.encoder import Encoder
from training.recipes.schema import Recipe
from training.trainer.batches import Batch, BatchLoader, without_missing
from training.trainer.run_state.processes import Processes

_DEEP: Final = 10
_GIVE_MORE: Final = "give it more, or none, and the last weights are kept."

ValueOfBatch = Callable[[Batch], Tensor]


@dataclass(frozen=True)
class Validation:
    """Measures the model on the validation split.

    Attributes:
        recipe: Recipe of the run.
        manifest: The validation split.
        encoder: Around the model in training.
        loss_batches: Its pairs, when the loss is what selects; None otherwise.
        loss: The objective on a batch, without gradient.
        processes: All measure the loss, each on its share; the leading one measures the rest.
        broken: By line, the images that could not be read when it was measured.
    """

    recipe: Recipe
    manifest: Manifest
    encoder: Encoder
    loss_batches: BatchLoader | None
    loss: ValueOfBatch
    processes: Processes
    broken: dict[int, Rejection] = field(default_factory=dict)

    def measure(self) -> dict[str, float]:
        """All figures by name, the same in every process.

        Raises:
            RecipeError: The figure that selects the best checkpoint cannot be measured on this split.
        """
        figures: dict[str, float] = {}
        if self.loss_batches is not None:
            figures["loss"] = self._mean_loss(self.loss_batches)
        figures |= self.processes.broadcast(self._retrieval() if self.processes.is_main else {})
        select_by = self.recipe.train.select_by
        if select_by not in figures:
            available = [name for name in ("rsum", "precision_at_10") if name in figures]
            raise RecipeError(
                f"The validation split is too small for {select_by}: set train.select_by to "
                f"{' or '.join([*available, 'loss'])}."
            )
        return figures

    def _retrieval(self) -> dict[str, float]:
        if not self._anything_to_search():
            return {}
        train = self.recipe.train
        embedded = embed_manifest(
            self.encoder,
            self.manifest,
            batch_size=min(train.batch_size, train.encoded_at_once),
            show_progress=False,
        )
        sounds = () if embedded.sounds is None else embedded.sounds.skipped.items
        self.broken.update((rejection.line, rejection) for rejection in (*sounds, *embedded.skipped.items))
        template = self.recipe.data.label_template
        return measure(self.encoder, embedded, label_template=template).metrics()

    def _anything_to_search(self) -> bool:
        """Whether the split has something that the encoder can be searched for, or judged by."""
        modalities = self.encoder.modalities
        return any(
            record.labels
            or ("text" in modalities and record.texts)
            or ("audio" in modalities and record.audio)
            for record in self.manifest.records
        )

    def _mean_loss(self, batches: BatchLoader) -> float:
        losses = [self.loss(without_missing(batch, self.processes)) for batch in _one_epoch(batches)]
        return float(mean_over_processes(torch.stack(losses).mean()))


def check_selectable(
    select_by: str, manifest: Manifest, modalities: frozenset[Modality], *, by_pairs: bool = False
) -> None:
    """Make sure, before any work, that the validation split has what the selecting figure needs.

    Without texts, the recall between images and sounds is what `rsum` sums.

    Args:
        select_by: Name of the figure.
        manifest: The validation split.
        modalities: Modalities that the model has towers for.
        by_pairs: It compares images and texts pair by pair, and no label is searched by a sentence.

    Raises:
        RecipeError: It has not.
    """
    if select_by == "precision_at_10":
        other = "loss" if modalities == {"image"} else "rsum or loss"
        by_sentences = "text" in modalities and not by_pairs
        _check_labels([record for record in manifest.records if record.labels], other, by_sentences)
    if select_by != "rsum":
        return
    if modalities == {"image"}:
        raise RecipeError(
            "A model of images alone is searched by nothing else: set train.select_by to precision_at_10 or "
            "loss."
        )
    lacking = "texts" if "text" in modalities else "sounds"
    usable = sum(bool(record.texts if lacking == "texts" else record.audio) for record in manifest.records)
    if usable == 0:
        raise RecipeError(
            f"The validation split has no {lacking}: set train.select_by to precision_at_10 or loss."
        )
    if usable == 1:
        raise RecipeError(
            f"The validation split is too small for rsum, as every model finds its one image with {lacking}: "
            f"{_GIVE_MORE}"
        )
    if lacking == "texts" and not differ_in_texts(manifest.records):
        raise RecipeError(
            f"The validation split is too small for rsum, as all its images have the same text, and every "
            f"model finds them by it: {_GIVE_MORE}"
        )


def check_comparable(usable: Manifest, modalities: frozenset[Modality]) -> None:
    """Make sure that the loss of the validation split compares something, where the loss selects.

    Args:
        usable: Records of the split that have all that the objective takes.
        modalities: Modalities that the objective compares.

    Raises:
        RecipeError: No two differ, and the loss is the same whatever the model says.
    """
    of_texts = modalities == {"image", "text"}
    if differ_in_texts(usable.records) if of_texts else len(usable.records) > 1:
        return
    lacking = "two images with different texts" if of_texts else "two images"
    raise RecipeError(
        f"The validation split is too small for loss, which compares images with each other, and it has no "
        f"{lacking}: {_GIVE_MORE}"
    )


def _check_labels(labelled: Sequence[Record], other: str, by_sentences: bool) -> None:
    """Make sure that images with labels can be searched ten deep, by a sentence or by one of them.

    Raises:
        RecipeError: They cannot.
    """
    if not labelled:
        raise RecipeError(f"The validation split has no labels: set train.select_by to {other}.")
    patients = Counter(record.group for record in labelled)
    own = min(1 if record.group is None else patients[record.group] for record in labelled)
    if len(labelled) - (0 if by_sentences else own) < _DEEP:
        raise RecipeError(
            f"The validation split is too small for precision_at_10, which takes {_DEEP} images with labels "
            f"for each search, of other patients than an image that is searched by: set train.select_by to "
            f"{other}."
        )


def is_better(select_by: str, figures: Mapping[str, float], best: Mapping[str, float]) -> bool:
    """Whether the figures beat the best so far, which may be empty; a figure that is no number never does."""
    value = figures[select_by]
    if math.isnan(value):
        return False
    if not best:
        return True
    return value < best[select_by] if select_by == "loss" else value > best[select_by]


def _one_epoch(batches: BatchLoader) -> Iterator[Batch]:
    for index in range(batches.batches_per_epoch):
        yield batches.load(0, index)

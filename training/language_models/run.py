"""One run of a language model, from a recipe and a folder of sentences to its figures."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from training.errors import RecipeError
from training.language_models.config import AnnealingConfig, LanguageModelRecipe
from training.language_models.corpus import (
    SentenceBatch,
    SentenceLoader,
    Vocabulary,
    fingerprint,
    read_corpus,
)
from training.language_models.measures import ELBO, measure
from training.language_models.model import SentenceVae
from training.language_models.task import LanguageModelTask
from training.tasks.opening import RunOptions, open_run
from training.tasks.problem import TaskProblem
from training.tasks.rejected import report
from training.tasks.share import kept_share
from training.trainer.run_state.processes import Processes

_SPLITS = ("train", "valid", "test")


@dataclass(frozen=True, slots=True)
class LanguageModelResult:
    """Result of a finished run.

    Attributes:
        test: Metrics of the best checkpoint on the test sentences.
        validation: Metrics of the best checkpoint on the validation sentences.
        checkpoint: Path of the best checkpoint.
        rejected: Number of lines left out.
    """

    test: dict[str, float]
    validation: dict[str, float]
    checkpoint: Path
    rejected: int


def train_language_model(recipe: LanguageModelRecipe, data: Path, options: RunOptions) -> LanguageModelResult:
    """Train a variational language model and measure it on test sentences (RECLAIM, section 5.3).

    The global random generators are seeded.

    Args:
        recipe: Settings of the model and its training.
        data: Folder with train.txt, valid.txt and test.txt, a sentence a line.
        options: Folder, device and output of the run.

    Raises:
        RecoquestError: Something that the user can mend; the message says what.
    """
    with open_run(recipe, options) as run:
        _check_shareable(recipe, run.processes)
        corpora = {
            name: read_corpus(data / f"{name}.txt", max_rejected=recipe.data.max_rejected) for name in _SPLITS
        }
        rejected = report(run.processes, *(corpus.rejections for corpus in corpora.values()))
        train = kept_share(corpora["train"].sentences, recipe.data)
        vocabulary = Vocabulary.learned(train, recipe.model.vocabulary_size)
        vae = SentenceVae(recipe.model, len(vocabulary))
        loader = partial(
            SentenceLoader,
            vocabulary=vocabulary,
            max_words=recipe.model.max_words,
            batch_size=recipe.train.batch_size,
        )
        measured = partial(measure, vae, run.fabric, seed=recipe.train.seed)
        batches = loader(train, seed=recipe.train.seed, processes=run.processes)
        valid, test = (loader(corpora[name].sentences) for name in _SPLITS[1:])
        problem = TaskProblem(
            module=LanguageModelTask(vae, recipe.model, recipe.reclaim, instances=len(train)),
            batches=batches,
            inputs=partial(_inputs, recipe.kl, batches.batches_per_epoch, run.fabric.device),
            validate=lambda: measured(valid, draws=1),
            chosen_by=ELBO,
            fingerprint=fingerprint([*train, *corpora["valid"].sentences]),
            fabric=run.fabric,
            processes=run.processes,
            largest=batches.largest,
        )
        loop = run.fit(problem)
        figures = problem.measured(
            lambda: measured(test, draws=recipe.test_draws, show_progress=run.show_progress)
        )
        sizes = {name: len(corpus.sentences) for name, corpus in corpora.items()}
        run.write_results(
            {
                "recipe": recipe.name,
                "task": recipe.task,
                "test": figures,
                "validation": loop.metrics,
                "steps": loop.position.step,
                "vocabulary": len(vocabulary),
                "examples": {**sizes, "train": len(train)},
                "rejected": rejected,
            }
        )
    return LanguageModelResult(figures, loop.metrics, run.folder.best, rejected)


def _check_shareable(recipe: LanguageModelRecipe, processes: Processes) -> None:
    """Make sure that several processes can share the batches of a model.

    Raises:
        RecipeError: They cannot.
    """
    if recipe.model.refinement is not None and processes.count > 1:
        raise RecipeError(
            "SA-VAE refines the codes of a whole batch by one gradient: train it in one process, or set "
            "model.refinement to null."
        )


def _inputs(
    annealing: AnnealingConfig, batches_per_epoch: int, device: torch.device, batch: SentenceBatch, step: int
) -> tuple[Tensor, ...]:
    """Inputs of a training step: ids, lengths, items, and the weight of the KL divergence."""
    weight = annealing.weight(step, batches_per_epoch)
    # Filled in on the device: a number that is copied there would wait for it.
    return *batch.tensors(device), torch.full((), weight, device=device)

"""One run of a language model, from a recipe and a folder of sentences to its figures."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final

import torch
from lightning_fabric import Fabric
from torch import Tensor

from training.common.errors import RecipeError
from training.common.progress import progress_bar
from training.language_models.config import AnnealingConfig, LanguageModelRecipe, SentenceVaeConfig
from training.language_models.corpus import (
    SentenceBatch,
    SentenceLoader,
    Vocabulary,
    fingerprint,
    read_corpus,
)
from training.language_models.model import SentenceVae, VaeOutput
from training.papers.reclaim import ReclaimTermSettings
from training.tasks.held_out import kept_share
from training.tasks.opening import RunOptions, TaskResult, open_run
from training.tasks.problem import ReclaimTask, TaskProblem
from training.trainer.run_state.processes import Processes

NAMES = ("elbo", "perplexity", "kl", "mutual_information", "active_units")
# The paper prints the negative ELBO. Where both tables have a row, these are the figures of table 4.
_ROWS: Mapping[str, tuple[float, ...]] = MappingProxyType(
    {
        "lm-ptb-vae": (-102.6, 108.26, 1.08, 0.8, 2),
        "lm-ptb-beta-vae": (-104.5, 117.92, 7.50, 3.1, 5),
        "lm-ptb-sa-vae": (-102.6, 107.71, 1.23, 0.7, 2),
        "lm-ptb-cyc-vae": (-103.1, 110.50, 3.48, 1.8, 5),
        "lm-ptb-ivae": (-87.6, 54.46, 6.32, 3.5, 32),
        "lm-ptb-ivae-cl": (-88.1, 55.2, 1.6, 4.1, 32),
        "lm-ptb-ivae-reclaim": (-85.6, 48.7, 5.88, 4.43, 32),
        "lm-ptb-vae-reclaim": (-102.1, 107.15, 1.2, 0.9, 5),
        "lm-ptb-cyc-vae-reclaim": (-98.8, 105.7, 4.18, 2.2, 10),
        "lm-yelp-vae": (-357.9, 40.56, 0.0, 0.0, 0),
        "lm-yelp-beta-vae": (-358.2, 40.69, 4.2, 2.0, 4),
        "lm-yelp-sa-vae": (-355.9, 39.73, 2.8, 1.7, 8),
        "lm-yelp-cyc-vae": (-355.9, 39.73, 3.8, 2.4, 11),
        "lm-yelp-ivae": (-348.2, 36.70, 7.6, 4.6, 32),
        "lm-yelp-ivae-cl": (-350.1, 37.1, 6.6, 3.7, 32),
        "lm-yelp-ivae-reclaim": (-346.6, 36.5, 4.2, 4.4, 32),
        "lm-yelp-vae-reclaim": (-352.1, 40.2, 2.1, 1.7, 10),
        "lm-yelp-cyc-vae-reclaim": (-350.2, 39.73, 4.5, 3.3, 25),
    }
)
ELBO: Final = "elbo"
_ACTIVE_VARIANCE: Final = 0.01
# Beyond it a perplexity is no number that a file of metrics can hold.
_LARGEST: Final = 700.0
_SPLITS = ("train", "valid", "test")


def train_language_model(
    recipe: LanguageModelRecipe, data: Path, options: RunOptions
) -> TaskResult[dict[str, float]]:
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
        rejected = run.report(*(corpus.rejections for corpus in corpora.values()))
        train = kept_share(corpora["train"].items, recipe.data)
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
        valid, test = (loader(corpora[name].items) for name in _SPLITS[1:])
        problem = TaskProblem(
            module=LanguageModelTask(vae, recipe.model, recipe.reclaim, instances=len(train)),
            batches=batches,
            inputs=partial(_inputs, recipe.kl, batches.batches_per_epoch, run.fabric.device),
            validate=lambda: measured(valid, draws=1),
            chosen_by=ELBO,
            fingerprint=fingerprint([*train, *corpora["valid"].items]),
            fabric=run.fabric,
            processes=run.processes,
            largest=batches.largest,
        )
        loop = run.fit(problem)
        figures = problem.measured(
            lambda: measured(test, draws=recipe.test_draws, show_progress=run.show_progress)
        )
        sizes = {name: len(corpus.items) for name, corpus in corpora.items()}
        counts = {"vocabulary": len(vocabulary), "examples": {**sizes, "train": len(train)}}
        return run.finish(loop, figures, {"task": recipe.task, "test": figures}, counts, rejected)


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


class LanguageModelTask(ReclaimTask):
    """The negative ELBO with a weight on its KL divergence, and RECLAIM's term with its own.

    Args:
        vae: Model to train.
        config: Settings of the model.
        reclaim: Settings of RECLAIM's term; None: no such term.
        instances: Training sentences.
    """

    def __init__(
        self,
        vae: SentenceVae,
        config: SentenceVaeConfig,
        reclaim: ReclaimTermSettings | None,
        *,
        instances: int,
    ) -> None:
        super().__init__()
        self.vae = vae
        self.set_term(reclaim, (config.latent, config.word_width), instances)

    def forward(
        self, ids: Tensor, lengths: Tensor, items: Tensor, kl_weight: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss of a training batch, the mean over its sentences, and its terms.

        Args:
            ids: (B, T).
            lengths: (B,), on the CPU.
            items: (B,), numbers of the training sentences.
            kl_weight: Scalar.
        """
        output = self.vae(ids, lengths, kl_weight)
        latent = output.latent
        reconstruction, kl = output.reconstruction.mean(), latent.kl.mean()
        loss = reconstruction + kl_weight * kl
        terms = {
            "reconstruction": reconstruction.detach(),
            "kl": kl.detach(),
            "kl_weight": kl_weight,
            "mutual_information": latent.information.mean(),
        }
        return self.with_term(loss, terms, latent.codes, output.words, items)


@dataclass
class Measures:
    """Sums over the sentences of a split.

    Attributes:
        reconstruction: Negative log likelihood, in nats.
        kl: Divergence of posterior and prior, in nats.
        information: Mutual information of sentence and code, in nats.
        tokens: Words and ends.
        centres: (B, L) of each batch, means of the posteriors.
    """

    reconstruction: float = 0.0
    kl: float = 0.0
    information: float = 0.0
    tokens: int = 0
    centres: list[Tensor] = field(default_factory=list)

    def add(self, draws: Sequence[VaeOutput], lengths: Tensor) -> None:
        """Add the sentences of a batch, the mean of one draw or more.

        Args:
            draws: Several draws for the same B sentences.
            lengths: (B,), their ids with start and end.
        """
        self.reconstruction += _sum([draw.reconstruction for draw in draws])
        self.kl += _sum([draw.latent.kl for draw in draws])
        self.information += _sum([draw.latent.information for draw in draws])
        self.tokens += int((lengths - 1).sum())
        self.centres.append(torch.stack([draw.latent.centres for draw in draws]).mean(dim=0).cpu())

    def figures(self) -> dict[str, float]:
        """By sentence, in nats: ELBO, reconstruction, KL and mutual information; perplexity; active units.

        A unit is active where the means of its posteriors vary by at least 0.01 (Burda et al. 2016).
        """
        centres = torch.cat(self.centres).double()
        number, loss = len(centres), self.reconstruction + self.kl
        return {
            ELBO: -loss / number,
            "reconstruction": self.reconstruction / number,
            "kl": self.kl / number,
            "perplexity": math.exp(min(loss / self.tokens, _LARGEST)),
            "mutual_information": self.information / number,
            "active_units": float((centres.var(dim=0, correction=0) >= _ACTIVE_VARIANCE).sum()),
        }


def measure(
    vae: SentenceVae,
    fabric: Fabric,
    loader: SentenceLoader,
    *,
    draws: int,
    seed: int,
    show_progress: bool = False,
) -> dict[str, float]:
    """The figures of all sentences; the global generators are as before.

    Args:
        vae: Model in evaluation mode.
        fabric: Device and precision.
        loader: Batches of the sentences.
        draws: Codes of each sentence.
        seed: Seed of the codes' noise, set anew in each call.
        show_progress: Show a bar on standard error.
    """
    found, device = Measures(), fabric.device
    weight = torch.ones((), device=device)
    with (
        torch.random.fork_rng([device] if device.type == "cuda" else []),
        torch.no_grad(),
        fabric.autocast(),
        progress_bar("measuring", len(loader), shown=show_progress) as bar,
    ):
        torch.manual_seed(seed)
        for batch in loader.in_order():
            ids, lengths, _ = batch.tensors(device)
            found.add([vae(ids, lengths, weight) for _ in range(draws)], lengths)
            bar.advance(len(ids))
    return found.figures()


def _sum(draws: Sequence[Tensor]) -> float:
    """The sum over sentences (B,) of the mean over draws."""
    return float(torch.stack(list(draws)).double().mean(dim=0).sum())


def published(recipe: LanguageModelRecipe) -> dict[str, float]:
    """The figures of the row that a recipe is named after; empty where there is none."""
    return dict(zip(NAMES, _ROWS.get(recipe.name, ()), strict=False))

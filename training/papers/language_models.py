"""Variational language models (Bowman et al. 2016) as RECLAIM's tables 4 and 7 compare them."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Self

import torch
from lightning_fabric import Fabric
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Adam

from training.common.distributed import gather_uneven, of_first_process
from training.common.errors import DataError, RecipeError
from training.common.frozen import Frozen
from training.common.progress import progress_bar
from training.common.rejections import Rejections, Usable
from training.models.pooling import Pooling, masked_mean
from training.objectives.similarity import full_precision
from training.papers.items import ItemLoader, kept_share
from training.papers.reclaim import ReclaimTermSettings
from training.papers.reclaim_task import ReclaimTask
from training.recipes.schema import ScheduleConfig
from training.recipes.tasks import TaskRecipe
from training.trainer.module_task import ModuleTask, TaskResult
from training.trainer.opening import RunOptions, open_run
from training.trainer.run_state.checkpoint import fingerprint


# Recipes.
class RefinementConfig(Frozen):
    """Steps downhill that refine each posterior, as SA-VAE has them (Kim et al. 2018)."""

    steps: int = Field(default=10, gt=0)
    rate: float = Field(default=1.0, gt=0, description="Step size along the gradient of the batch's mean.")
    momentum: float = Field(default=0.5, ge=0, lt=1)
    max_grad_norm: float = Field(
        default=5.0, gt=0, description="Clipping norm for means and for log variances."
    )


class RatioConfig(Frozen):
    """The networks that estimate densities where the posterior has none (iVAE, Fang et al. 2019)."""

    width: int = Field(default=512, gt=0, description="Width of the three hidden layers.")
    updates: int = Field(default=5, gt=0, description="Updates before each step of the model.")
    lr: float = Field(default=1e-5, gt=0)


class SentenceVaeConfig(Frozen):
    """An LSTM that reads a sentence, a latent code, and an LSTM that writes the sentence again."""

    word_width: int = Field(default=256, gt=0)
    width: int = Field(default=256, gt=0, description="State width of both LSTMs.")
    latent: int = Field(default=32, gt=0, description="Numbers of the code.")
    dropout: float = Field(default=0.5, ge=0, lt=1, description="Dropout at the decoder's input and output.")
    word_dropout: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="Share of the words that are hidden from the decoder (Bowman et al. 2016).",
    )
    init_range: float = Field(default=0.1, gt=0, description="Weights begin between this and its negative.")
    vocabulary_size: int = Field(default=20_000, gt=4, description="Upper bound; special tokens included.")
    max_words: int = Field(default=200, gt=0, description="Longer sentences are cut.")
    posterior: Literal["gaussian", "implicit"] = Field(
        default="gaussian",
        description="Distribution of codes: a Gaussian, or an implicit one that only gives samples.",
    )
    refinement: RefinementConfig | None = None
    ratio: RatioConfig = RatioConfig()

    @model_validator(mode="after")
    def _refinement_has_numbers(self) -> Self:
        if self.refinement is not None and self.posterior == "implicit":
            raise ValueError("an implicit posterior has no numbers to refine: set refinement to null")
        return self


class AnnealingConfig(Frozen):
    """Weight of the KL divergence: it rises in a line, and begins again after each cycle."""

    start: float = Field(default=0.1, ge=0, le=1)
    epochs: float = Field(default=10.0, gt=0, description="Epochs in which the weight would rise by 1.")
    final: float = Field(default=1.0, gt=0, le=1, description="Beta: where it stays.")
    cycle_epochs: int | None = Field(default=None, gt=0, description="Length of a cycle; None: there is one.")

    def weight(self, step: int, batches_per_epoch: int) -> float:
        """The weight in a step, counted from 0."""
        if self.cycle_epochs is not None:
            step %= self.cycle_epochs * batches_per_epoch
        return min(self.final, self.start + (step + 1) / (self.epochs * batches_per_epoch))


class LanguageModelRecipe(TaskRecipe):
    """A named, complete description of a run of a language model."""

    task: Literal["language-model"]
    model: SentenceVaeConfig = SentenceVaeConfig()
    kl: AnnealingConfig = AnnealingConfig()
    reclaim: ReclaimTermSettings | None = Field(
        default=None, description="RECLAIM's term on the latent code and the mean word embedding."
    )
    test_draws: int = Field(
        default=1, gt=0, description="Codes drawn for each sentence of the test; of validation it is one."
    )
    schedule: ScheduleConfig = ScheduleConfig(name="constant")


# Sentences.

PAD: Final = 0
UNKNOWN: Final = 1
START: Final = 2
END: Final = 3
_SPECIAL: Final = 4
# Token of words outside the vocabulary in the Penn Treebank as it is distributed for language models.
_UNKNOWN_WORD: Final = "<unk>"


def read_corpus(path: Path, *, max_rejected: float = 1.0) -> Usable[str]:
    """Read a file with a sentence a line and blanks between words; empty lines are passed over.

    Raises:
        DataError: The file cannot be read, has too many broken lines, or no sentence.
    """
    try:
        content = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from error
    lines = [(number, line) for number, line in enumerate(content.split(b"\n"), start=1) if line.strip()]
    rejections = Rejections(len(lines), max_rejected, source=str(path))
    sentences = []
    for number, line in lines:
        try:
            sentences.append(line.decode("utf-8").strip())
        except UnicodeDecodeError:
            rejections.add(number, "it is not UTF-8")
    if not sentences:
        raise DataError(f"{path} has no sentence: it needs one a line.")
    return Usable(tuple(sentences), rejections)


class Vocabulary:
    """The most frequent words of sentences; all others are one unknown word.

    Args:
        sentences: Sentences of the train split only.
        size: Upper bound, special tokens included.
    """

    def __init__(self, sentences: Iterable[str], size: int) -> None:
        counts = Counter(word for sentence in sentences for word in sentence.split())
        del counts[_UNKNOWN_WORD]
        words = sorted(counts, key=lambda word: (-counts[word], word))[: size - _SPECIAL]
        self._ids = {word: number for number, word in enumerate(words, start=_SPECIAL)}

    def __len__(self) -> int:
        """Number of ids."""
        return _SPECIAL + len(self._ids)

    def ids(self, sentence: str, max_words: int) -> list[int]:
        """Start, the words of a sentence, and end."""
        words = sentence.split()[:max_words]
        return [START, *(self._ids.get(word, UNKNOWN) for word in words), END]


class SentenceBatch(NamedTuple):
    """Sentences as ids.

    Attributes:
        ids: (B, T) int64, padded to the longest.
        lengths: (B,) int64, how many ids of each are real; on the CPU, where words are counted by them.
        items: (B,) int64, numbers of the sentences.
    """

    ids: Tensor
    lengths: Tensor
    items: Tensor


@dataclass(kw_only=True)
class SentenceLoader(ItemLoader[str, SentenceBatch]):
    """Batches of sentences, as ids of a vocabulary; those with more than `max_words` words are cut."""

    vocabulary: Vocabulary
    max_words: int

    def batch(self, indices: Sequence[int]) -> SentenceBatch:
        """The sentences at these indices."""
        rows = [self.vocabulary.ids(self.items[index], self.max_words) for index in indices]
        lengths = torch.tensor([len(row) for row in rows])
        ids = torch.full((len(rows), int(lengths.max())), PAD)
        for index, row in enumerate(rows):
            ids[index, : len(row)] = torch.tensor(row)
        return SentenceBatch(ids, lengths, torch.tensor(indices))

    def length(self, index: int) -> int:
        """Words of a sentence that are read."""
        return min(self.max_words, len(self.items[index].split()))


# Posteriors of a sentence's code. The prior is the standard normal distribution.

# Gives the negative log likelihood (B,) of the sentences by codes (B, L).
Reconstruct = Callable[[Tensor], Tensor]


class Latent(NamedTuple):
    """A code of each of B sentences.

    Attributes:
        codes: (B, L), drawn.
        centres: (B, L), means of the posteriors, or codes where their mean over draws is that.
        kl: (B,), of posterior and prior in nats, or an estimate; its gradient trains the encoder.
        information: (B,), without gradient; its mean estimates the mutual information of sentence and code.
    """

    codes: Tensor
    centres: Tensor
    kl: Tensor
    information: Tensor


@dataclass(frozen=True, slots=True)
class Gaussian:
    """Independent normal distributions: means (B, L) and the logarithms of variances (B, L)."""

    mean: Tensor
    log_variance: Tensor

    def sample(self) -> Tensor:
        """One code (B, L) of each, with gradient to both."""
        return self.mean + (self.log_variance / 2).exp() * torch.randn_like(self.mean)

    def kl(self) -> Tensor:
        """(B,), divergence from the standard normal distribution, in nats."""
        return (self.mean**2 + self.log_variance.exp() - self.log_variance - 1).sum(dim=1) / 2

    def information(self, codes: Tensor) -> Tensor:
        """(B,), the mean of `log q(z|x) - log q(z)`, with the batch's mixture for q(z) (He et al. 2019).

        Its mean over the batch is an estimate of the mutual information and never far above `log B`. `codes`
        (B, L) are one of each.
        """
        distances = (codes.unsqueeze(1) - self.mean) ** 2 / self.log_variance.exp()
        scale = math.log(2 * math.pi) + self.log_variance
        densities = -(distances + scale).sum(dim=2) / 2
        mixture = densities.logsumexp(dim=1) - math.log(len(codes))
        return -(1 + scale).sum(dim=1) / 2 - mixture


class GaussianPosterior(nn.Module):
    """Two linear layers give mean and log variance; a refinement by gradient steps may follow."""

    def __init__(self, width: int, latent: int, refinement: RefinementConfig | None) -> None:
        super().__init__()
        self.mean = nn.Linear(width, latent)
        self.log_variance = nn.Linear(width, latent)
        self.refinement = refinement

    def forward(self, state: Tensor, reconstruct: Reconstruct, kl_weight: Tensor) -> Latent:
        """Draw a code of each sentence by the encoder's states (B, W) and the KL divergence's weight."""
        drawn = Gaussian(full_precision(self.mean(state)), full_precision(self.log_variance(state)))
        if self.refinement is not None:
            drawn = refined(drawn, reconstruct, kl_weight, self.refinement, training=self.training)
        codes = drawn.sample()
        return Latent(codes, drawn.mean, drawn.kl(), drawn.information(codes).detach())


def refined(
    start: Gaussian,
    reconstruct: Reconstruct,
    kl_weight: Tensor,
    config: RefinementConfig,
    *,
    training: bool,
) -> Gaussian:
    """The posterior behind some steps with momentum down the negative ELBO (Kim et al. 2018, algorithm 1).

    In training the gradient goes through all the steps, exactly: each costs the memory of one more decoder.
    """
    values: Sequence[Tensor] = (start.mean, start.log_variance)
    if not training:
        values = [value.detach().requires_grad_() for value in values]
    speeds: Sequence[Tensor] = [torch.zeros_like(value) for value in values]
    # The LSTM of cuDNN has no second derivative, and outside training not even a first one.
    with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
        for _ in range(config.steps):
            posterior = Gaussian(*values)
            loss = (reconstruct(posterior.sample()) + kl_weight * posterior.kl()).mean()
            slopes = torch.autograd.grad(loss, list(values), create_graph=training)
            norms = [torch.linalg.vector_norm(slope.detach()).clamp(min=1e-12) for slope in slopes]
            speeds = [
                config.momentum * speed - slope * (config.max_grad_norm / norm).clamp(max=1)
                for speed, slope, norm in zip(speeds, slopes, norms, strict=True)
            ]
            values = [value + config.rate * speed for value, speed in zip(values, speeds, strict=True)]
    return Gaussian(*values)


class ImplicitPosterior(nn.Module):
    """One linear layer makes a code of state and noise; two networks estimate what its KL divergence is.

    By Fenchel duality `KL(q|p)` is the largest value of `E_q[nu] - E_p[exp nu] + 1` over functions nu, and
    the best one is `log q/p`. Of q(z|x) that is the KL divergence of the ELBO, of q(z) its share that says
    nothing about the sentence; the difference is the mutual information.

    The networks have an optimizer of their own, whose state goes into checkpoints with the weights.
    """

    def __init__(self, width: int, latent: int, config: RatioConfig) -> None:
        super().__init__()
        self.draw = nn.Linear(width + latent, latent)
        self.of_sentence = _log_ratio(latent + width, config.width)
        self.of_all = _log_ratio(latent, config.width)
        self._ratios = [*self.of_sentence.parameters(), *self.of_all.parameters()]
        self._optimizer = Adam(self._ratios, lr=config.lr)
        self._updates = config.updates
        self._learn_ratios(False)

    def forward(self, state: Tensor, reconstruct: Reconstruct, kl_weight: Tensor) -> Latent:  # noqa: ARG002
        """Draw a code of each sentence; in training, bring the networks up to these codes first.

        The arguments are those of `GaussianPosterior`.
        """
        noise = state.new_empty(len(state), self.draw.out_features).normal_()
        codes = full_precision(self.draw(torch.cat([state, noise], dim=1)))
        state = full_precision(state.detach())
        with torch.autocast(state.device.type, enabled=False):
            if self.training:
                self._fit(codes, state)
            prior = torch.randn_like(codes)
            kl = _divergence(self.of_sentence, torch.cat([codes, state], 1), torch.cat([prior, state], 1))
            information = (kl - _divergence(self.of_all, codes, prior)).detach()
        return Latent(codes, codes, kl, information)

    def get_extra_state(self) -> dict[str, Any]:
        """The state of the networks' optimizer."""
        return self._optimizer.state_dict()

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Take the state of a checkpoint."""
        self._optimizer.load_state_dict(state)

    def _fit(self, codes: Tensor, state: Tensor) -> None:
        """Raise both divergences by some steps of the networks; those of all processes stay the same."""
        codes, state = gather_uneven(codes), gather_uneven(state)
        self._learn_ratios(True)
        for _ in range(self._updates):
            prior = of_first_process(torch.randn_like(codes))
            kl = _divergence(self.of_sentence, torch.cat([codes, state], 1), torch.cat([prior, state], 1))
            loss = -(kl + _divergence(self.of_all, codes, prior)).mean()
            self._optimizer.zero_grad()
            torch.autograd.backward(loss)
            self._optimizer.step()
        self._optimizer.zero_grad()
        self._learn_ratios(False)

    def _learn_ratios(self, learn: bool) -> None:
        """Whether a loss has gradients of the networks; that of the model never has."""
        for parameter in self._ratios:
            parameter.requires_grad_(learn)


def _log_ratio(width: int, hidden: int) -> nn.Sequential:
    """A network that estimates the logarithm of a ratio of densities, (..., 1), of points (..., D)."""
    layers: list[nn.Module] = []
    for inside in (width, hidden, hidden):
        layers += [nn.Linear(inside, hidden), nn.LeakyReLU()]
    return nn.Sequential(*layers, nn.Linear(hidden, 1))


def _divergence(ratio: nn.Sequential, ours: Tensor, prior: Tensor) -> Tensor:
    """(B,), the dual estimate of the divergence by points (B, D) of either density."""
    divergence: Tensor = ratio(ours) - ratio(prior).exp() + 1
    return divergence.squeeze(1)


# The model.
class VaeOutput(NamedTuple):
    """Output of the model for B sentences.

    Attributes:
        reconstruction: (B,), negative log likelihood of each sentence by its code, in nats.
        latent: The codes.
        words: (B, E), the mean embedding of each sentence's words: RECLAIM's other feature.
    """

    reconstruction: Tensor
    latent: Latent
    words: Tensor


class SentenceVae(nn.Module):
    """Encoder, posterior and decoder."""

    def __init__(self, config: SentenceVaeConfig, vocabulary: int) -> None:
        super().__init__()
        self.encoder = SentenceEncoder(config, vocabulary)
        self.decoder = SentenceDecoder(config, vocabulary)
        self.posterior = (
            ImplicitPosterior(config.width, config.latent, config.ratio)
            if config.posterior == "implicit"
            else GaussianPosterior(config.width, config.latent, config.refinement)
        )
        for parameter in self.parameters():
            # The networks that estimate densities take no gradients here, and begin as usual.
            if parameter.requires_grad:
                nn.init.uniform_(parameter, -config.init_range, config.init_range)

    def forward(self, ids: Tensor, lengths: Tensor, kl_weight: Tensor) -> VaeOutput:
        """Read and write sentences, as `SentenceBatch` has them, by the KL divergence's weight (scalar)."""
        state, words = self.encoder(ids, lengths)
        reconstruct = partial(self.decoder, ids=ids, lengths=lengths)
        latent: Latent = self.posterior(state, reconstruct, kl_weight)
        return VaeOutput(reconstruct(latent.codes), latent, words)


class SentenceEncoder(nn.Module):
    """Reads a sentence from its first word to its last."""

    def __init__(self, config: SentenceVaeConfig, vocabulary: int) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, config.word_width)
        self.lstm = nn.LSTM(config.word_width, config.width, batch_first=True)
        self.last = Pooling("eos", config.width)

    def forward(self, ids: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """The state (B, W) behind each sentence, and the mean embedding (B, E) of its words."""
        embedded, real = self.words(ids), _real(lengths, ids)
        # Padding comes last, so no real word has read it. Packing copies an order to a GPU, and waits for it.
        states, _ = self.lstm(embedded)
        state, _ = self.last(states, real)
        return state, masked_mean(embedded, real)


class SentenceDecoder(nn.Module):
    """Writes a sentence word by word; it sees the code at the start and with every word."""

    def __init__(self, config: SentenceVaeConfig, vocabulary: int) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, config.word_width)
        self.start = nn.Linear(config.latent, config.width)
        self.lstm = nn.LSTM(config.word_width + config.latent, config.width, batch_first=True)
        self.output = nn.Linear(config.width, vocabulary)
        self.dropout = nn.Dropout(config.dropout)
        self.word_dropout = config.word_dropout

    def forward(self, codes: Tensor, ids: Tensor, lengths: Tensor) -> Tensor:
        """Negative log likelihood (B,) of sentences (B, T) by codes (B, L), the end included."""
        embedded = self.dropout(self.words(self._hidden(ids[:, :-1])))
        repeated = codes.to(embedded.dtype).unsqueeze(1).expand(-1, embedded.shape[1], -1)
        first = self.start(codes).unsqueeze(0)
        states, _ = self.lstm(torch.cat([embedded, repeated], dim=2), (first, torch.zeros_like(first)))
        # Counted on the CPU: a GPU would be waited for to learn how many words are real.
        count = int(lengths.sum()) - len(lengths)
        row, position = torch.nonzero_static(_real(lengths - 1, ids[:, 1:]), size=count).unbind(dim=1)
        logits = self.output(self.dropout(states[row, position]))
        with torch.autocast(logits.device.type, enabled=False):
            losses = cross_entropy(full_precision(logits), ids[row, position + 1], reduction="none")
        return losses.new_zeros(len(ids)).index_add(0, row, losses)

    def _hidden(self, ids: Tensor) -> Tensor:
        """The decoder's inputs; in training, word dropout makes some of them unknown."""
        if not self.training or not self.word_dropout:
            return ids
        hidden = torch.rand(ids.shape, device=ids.device) < self.word_dropout
        hidden[:, 0] = False
        return ids.masked_fill(hidden, UNKNOWN)


def _real(lengths: Tensor, ids: Tensor) -> Tensor:
    """(B, T), True for the first `lengths` (B,) ids (B, T) of a row."""
    here = lengths.to(ids.device, non_blocking=True)
    return torch.arange(ids.shape[1], device=ids.device) < here.unsqueeze(1)


class LanguageModelTask(ReclaimTask):
    """The negative ELBO with a weight on its KL divergence, and RECLAIM's term with its own."""

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

        The arguments are those of `SentenceBatch`, and the weight of the KL divergence, a scalar.
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


# A run.

ELBO: Final = "elbo"
_SPLITS: Final = ("train", "valid", "test")


def train_language_model(
    recipe: LanguageModelRecipe, data: Path, options: RunOptions
) -> TaskResult[dict[str, float]]:
    """Train a variational language model and measure it on test sentences (RECLAIM, section 5.3).

    `data` has train.txt, valid.txt and test.txt, a sentence a line. The global random generators are seeded.

    Raises:
        RecoquestError: Something that the user can mend; the message says what.
    """
    with open_run(recipe, options) as run:
        if recipe.model.refinement is not None and run.processes.count > 1:
            raise RecipeError(
                "SA-VAE refines the codes of a whole batch by one gradient: train it in one process, or set "
                "model.refinement to null."
            )
        corpora = {
            name: read_corpus(data / f"{name}.txt", max_rejected=recipe.data.max_rejected) for name in _SPLITS
        }
        rejected = len(run.report(*(corpus.rejections for corpus in corpora.values())))
        train = kept_share(corpora["train"].items, recipe.data)
        vocabulary = Vocabulary(train, recipe.model.vocabulary_size)
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
        device = run.fabric.device

        def inputs(batch: SentenceBatch, step: int) -> tuple[Tensor, ...]:
            ids, items = (part.to(device, non_blocking=True) for part in (batch.ids, batch.items))
            weight = recipe.kl.weight(step, batches.batches_per_epoch)
            # Filled in on the device: a number that is copied there would wait for it.
            return ids, batch.lengths, items, torch.full((), weight, device=device)

        run_task = ModuleTask(
            run=run,
            recipe=recipe,
            module=LanguageModelTask(vae, recipe.model, recipe.reclaim, instances=len(train)),
            batches=batches,
            inputs=inputs,
            validate=lambda: measured(valid, draws=1),
            chosen_by=ELBO,
            fingerprint=fingerprint([*train, *corpora["valid"].items]),
            largest=batches.largest,
        )
        loop = run_task.fit()
        metrics = run_task.measured(
            lambda: measured(test, draws=recipe.test_draws, show_progress=run.show_progress)
        )
        sizes = {name: len(corpus.items) for name, corpus in corpora.items()}
        counts = {"vocabulary": len(vocabulary), "examples": {**sizes, "train": len(train)}}
        return run_task.finish(loop, metrics, {"task": recipe.task, "test": metrics}, counts, rejected)


def measure(
    vae: SentenceVae,
    fabric: Fabric,
    loader: SentenceLoader,
    *,
    draws: int,
    seed: int,
    show_progress: bool = False,
) -> dict[str, float]:
    """The figures of all sentences by a model in evaluation mode; the global generators are as before.

    `draws` codes are drawn of each sentence; each call seeds their noise anew.
    """
    device = fabric.device
    weight = torch.ones((), device=device)

    def outputs() -> Iterator[tuple[Sequence[VaeOutput], Tensor]]:
        for batch in loader.in_order():
            ids = batch.ids.to(device, non_blocking=True)
            yield [vae(ids, batch.lengths, weight) for _ in range(draws)], batch.lengths
            bar.advance(len(ids))

    with (
        torch.random.fork_rng([device] if device.type == "cuda" else []),
        torch.no_grad(),
        fabric.autocast(),
        progress_bar("measuring", len(loader), shown=show_progress) as bar,
    ):
        torch.manual_seed(seed)
        return figures(outputs())


# A unit is active if the means of its posteriors vary by at least this much (Burda et al. 2016).
_ACTIVE_VARIANCE: Final = 0.01
# The logarithm of the largest perplexity that a file of metrics can hold.
_LARGEST: Final = 700.0


def figures(batches: Iterable[tuple[Sequence[VaeOutput], Tensor]]) -> dict[str, float]:
    """Return ELBO, reconstruction, KL and mutual information by sentence, in nats; perplexity; active units.

    Each batch is one draw or more for the same B sentences, of which the mean counts, and the number of ids
    (B,) of each sentence, start and end included.
    """
    sums, tokens, centres = [0.0, 0.0, 0.0], 0, []
    for draws, lengths in batches:
        terms = zip(*((draw.reconstruction, *draw.latent[2:]) for draw in draws), strict=True)
        means = [torch.stack(term).double().mean(dim=0).sum() for term in terms]
        sums = [total + float(mean) for total, mean in zip(sums, means, strict=True)]
        tokens += int((lengths - 1).sum())
        centres.append(torch.stack([draw.latent.centres for draw in draws]).mean(dim=0).cpu())
    every = torch.cat(centres).double()
    reconstruction, kl, information = sums
    return {
        ELBO: -(reconstruction + kl) / len(every),
        "reconstruction": reconstruction / len(every),
        "kl": kl / len(every),
        "perplexity": math.exp(min((reconstruction + kl) / tokens, _LARGEST)),
        "mutual_information": information / len(every),
        "active_units": float((every.var(dim=0, correction=0) >= _ACTIVE_VARIANCE).sum()),
    }


# What RECLAIM's paper reports.

NAMES: Final = ("elbo", "perplexity", "kl", "mutual_information", "active_units")


def published(recipe: LanguageModelRecipe) -> dict[str, float]:
    """The figures of the row that a recipe is named after; empty where there is none.

    The paper prints the negative ELBO. Where both tables have a row, these are the figures of table 4.
    """
    rows = {
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
    return dict(zip(NAMES, rows.get(recipe.name, ()), strict=False))

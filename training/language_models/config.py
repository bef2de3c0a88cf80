"""Typed settings of variational language models."""

from collections.abc import Sequence
from functools import cache
from typing import Literal, Self

from pydantic import Field, model_validator

from training.common.frozen import Frozen
from training.papers.reclaim import ReclaimTermSettings
from training.recipes.library import Library
from training.recipes.load import parse_as, task_tree
from training.recipes.schema import ScheduleConfig
from training.recipes.tasks import TaskRecipe


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


@cache
def shipped() -> Library:
    """The recipes that come with the project; they do not change while it runs."""
    return Library.of_package("training.language_models.recipes")


def load_language_recipe(name_or_path: str, overrides: Sequence[str] = ()) -> LanguageModelRecipe:
    """Read a recipe of `shipped`, or a YAML file, with overrides `dotted.key=value`.

    Raises:
        RecipeError: No such recipe, not YAML, an unknown key or a value that does not fit.
    """
    tree = task_tree(shipped(), "language models", name_or_path, overrides)
    return parse_as(LanguageModelRecipe, tree, f"Recipe {name_or_path}")

"""Model, loss and RECLAIM's term as one module, so that a batch goes in and a loss comes out."""

from torch import Tensor

from training.language_models.config import SentenceVaeConfig
from training.language_models.model import SentenceVae
from training.objectives.reclaim import ReclaimTerm, ReclaimTermSettings
from training.tasks.problem import TaskModule


class LanguageModelTask(TaskModule):
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
        self.weight = 0.0 if reclaim is None else reclaim.weight
        self.term = None
        if reclaim is not None:
            self.term = ReclaimTerm(config.latent, config.word_width, instances, reclaim)

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
        if self.term is None:
            return loss, terms
        contrast, found = self.term(latent.codes, output.words, items)
        return loss + self.weight * contrast, {**terms, **found}

    def after_step(self) -> None:
        """Put the last batch into RECLAIM's memory."""
        if self.term is not None:
            self.term.after_step()

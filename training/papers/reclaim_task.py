"""Tasks whose loss may have RECLAIM's term; the objective itself needs no trainer."""

from torch import Tensor

from training.papers.reclaim import ReclaimTerm, ReclaimTermSettings
from training.trainer.modules import TrainedModule


class ReclaimTask(TrainedModule):
    """A task module whose loss may have RECLAIM's term, with its weight."""

    weight: float
    term: ReclaimTerm | None

    def set_term(
        self,
        settings: ReclaimTermSettings | None,
        widths: tuple[int, int],
        instances: int,
        groups: tuple[int, ...] | None = None,
    ) -> None:
        """Make the term, or none without settings; other arguments are those of `ReclaimTerm`."""
        self.weight = 0.0 if settings is None else settings.weight
        self.term = None if settings is None else ReclaimTerm(*widths, instances, settings, groups)

    def with_term(
        self, loss: Tensor, terms: dict[str, Tensor], first: Tensor, second: Tensor, items: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Add the term for the two features of a batch to its loss and to the terms that are reported."""
        if self.term is None:
            return loss, terms
        contrast, of_term = self.term(first, second, items)
        return loss + self.weight * contrast, {**terms, **of_term}

    def after_step(self) -> None:
        """Put the last batch into RECLAIM's memory."""
        if self.term is not None:
            self.term.after_step()

"""The batch of any position of a run, and a fingerprint of the examples."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from training.classification.texts.glue import Example
from training.classification.texts.text_pairs import PairTokenizer, PairTokens
from training.tasks.loader import ItemLoader
from training.trainer.run_state.processes import Processes


@dataclass(frozen=True, slots=True)
class ExampleBatch:
    """Rows, their labels (B,) float, and the numbers (B,) of their examples."""

    tokens: PairTokens
    labels: Tensor
    items: Tensor

    def tensors(self, device: torch.device) -> tuple[Tensor, ...]:
        """Ids, mask, segments, labels and items on a device."""
        tokens = self.tokens
        parts = (tokens.input_ids, tokens.attention_mask, tokens.segments, self.labels, self.items)
        return tuple(part.to(device, non_blocking=True) for part in parts)


def fingerprint(examples: Sequence[Example]) -> str:
    """SHA-256 over texts and labels in their order."""
    digest = hashlib.sha256()
    for example in examples:
        digest.update(json.dumps([example.first, example.second, example.label]).encode())
    return digest.hexdigest()


class ExampleLoader(ItemLoader[ExampleBatch]):
    """Batches of examples.

    Args:
        examples: Examples to draw from.
        tokenizer: Tokenizer of rows.
        batch_size: Rows of a batch.
        seed: Seed of the order, which differs in every epoch.
        processes: Whose share of each batch is drawn.
    """

    def __init__(
        self,
        examples: Sequence[Example],
        tokenizer: PairTokenizer,
        batch_size: int,
        seed: int = 0,
        processes: Processes | None = None,
    ) -> None:
        super().__init__(len(examples), batch_size, seed, processes)
        self._examples = examples
        self._tokenizer = tokenizer

    def batch(self, places: Sequence[int]) -> ExampleBatch:
        """The rows of the examples at these places."""
        chosen = [self._examples[place] for place in places]
        labels = torch.tensor([example.label for example in chosen], dtype=torch.float32)
        return ExampleBatch(self._tokenizer(chosen), labels, torch.tensor(places))

    def length(self, place: int) -> int:
        """Characters of an example."""
        example = self._examples[place]
        return len(example.first) + len(example.second or "")

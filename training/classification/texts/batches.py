"""Which training examples are kept, and the batch of any position of a run."""

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np
import torch
from torch import Tensor

from training.classification.config import ClassificationDataConfig
from training.classification.texts.glue import Example
from training.classification.texts.text_pairs import PairTokenizer, PairTokens
from training.data.pairs import Position


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
        return tuple(part.to(device) for part in parts)


def kept_share(examples: Sequence[Example], config: ClassificationDataConfig) -> tuple[Example, ...]:
    """The share of examples that a run trains on, in the order of the file; at least one."""
    if config.share == 1:
        return tuple(examples)
    number = max(1, math.floor(config.share * len(examples)))
    chosen = np.random.default_rng(config.share_seed).permutation(len(examples))[:number]
    return tuple(examples[place] for place in sorted(chosen.tolist()))


def fingerprint(examples: Sequence[Example]) -> str:
    """SHA-256 over texts and labels in their order."""
    digest = hashlib.sha256()
    for example in examples:
        digest.update(json.dumps([example.first, example.second, example.label]).encode())
    return digest.hexdigest()


class ExampleLoader:
    """Batches of examples; the last one of an epoch holds what is left.

    Args:
        examples: To draw from.
        tokenizer: Of rows.
        batch_size: Rows of a batch.
        seed: Of the order, which is another in every epoch.
    """

    def __init__(
        self, examples: Sequence[Example], tokenizer: PairTokenizer, batch_size: int, seed: int = 0
    ) -> None:
        self.batches_per_epoch = -(-len(examples) // batch_size)
        self._examples = examples
        self._tokenizer = tokenizer
        self._batch_size = batch_size
        self._seed = seed

    def __len__(self) -> int:
        """How many examples there are."""
        return len(self._examples)

    def from_position(self, position: Position) -> Iterator[ExampleBatch]:
        """All batches from a position on in random order, without an end."""
        for epoch in count(position.epoch):
            order = np.random.default_rng((self._seed, epoch)).permutation(len(self._examples))
            first = position.index if epoch == position.epoch else 0
            for index in range(first, self.batches_per_epoch):
                yield self._batch(order[index * self._batch_size : (index + 1) * self._batch_size].tolist())

    def in_order(self) -> Iterator[ExampleBatch]:
        """Every example once."""
        for start in range(0, len(self._examples), self._batch_size):
            yield self._batch(range(start, min(start + self._batch_size, len(self._examples))))

    def _batch(self, places: Sequence[int]) -> ExampleBatch:
        chosen = [self._examples[place] for place in places]
        labels = torch.tensor([example.label for example in chosen], dtype=torch.float32)
        return ExampleBatch(self._tokenizer(chosen), labels, torch.tensor(places))

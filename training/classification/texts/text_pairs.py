"""One text, or two in one row, as token ids that a classifier reads."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from tokenizers import Encoding
from torch import Tensor

from training.classification.texts.glue import Example
from training.models.text_input import Tokenizer


@dataclass(frozen=True, slots=True)
class PairTokens:
    """Rows of ids, padded to the longest.

    Attributes:
        input_ids: (B, T) int64.
        attention_mask: (B, T) int64, 0 at padding.
        segments: (B, T) int64, 1 in the second text and the special token behind it.
    """

    input_ids: Tensor
    attention_mask: Tensor
    segments: Tensor

    def to(self, device: torch.device) -> "PairTokens":
        """Copy of the rows on a device."""
        return replace(
            self,
            input_ids=self.input_ids.to(device),
            attention_mask=self.attention_mask.to(device),
            segments=self.segments.to(device),
        )


class PairTokenizer:
    """Start, first text, end, second text, end; the longer text is cut first, at its end.

    Args:
        tokenizer: Tokenizer of the backbone.
        max_tokens: Longest row, special tokens included.
        separators: Special tokens between two texts: 1, or 2 as in RoBERTa.
    """

    def __init__(self, tokenizer: Tokenizer, max_tokens: int, *, separators: int = 1) -> None:
        self._tokenizer = tokenizer
        self._max_tokens = max_tokens
        self._start = [] if tokenizer.cls_id is None else [tokenizer.cls_id]
        self._end = [] if tokenizer.eos_id is None else [tokenizer.eos_id]
        self._separators = separators

    def __call__(self, examples: Sequence[Example]) -> PairTokens:
        """The rows of examples."""
        firsts = self._tokenizer.encode([example.first for example in examples])
        seconds = iter(self._tokenizer.encode([e.second for e in examples if e.second is not None]))
        rows = [
            self._row(_words(first), None if example.second is None else _words(next(seconds)))
            for first, example in zip(firsts, examples, strict=True)
        ]
        length = max((len(ids) for ids, _ in rows), default=0)
        input_ids = torch.full((len(rows), length), self._tokenizer.pad_id)
        mask, segments = torch.zeros((2, len(rows), length), dtype=torch.int64)
        for index, (ids, places) in enumerate(rows):
            input_ids[index, : len(ids)] = torch.tensor(ids)
            segments[index, : len(ids)] = torch.tensor(places)
            mask[index, : len(ids)] = 1
        return PairTokens(input_ids, mask, segments)

    def _row(self, first: list[int], second: list[int] | None) -> tuple[list[int], list[int]]:
        """Ids and segments of a row."""
        if second is None:
            room = self._max_tokens - len(self._start) - len(self._end)
            ids = [*self._start, *first[:room], *self._end] or [self._tokenizer.pad_id]
            return ids, [0] * len(ids)
        between = self._end * self._separators
        room = self._max_tokens - len(self._start) - len(between) - len(self._end)
        keep, keep_second = _shares(len(first), len(second), room)
        left = [*self._start, *first[:keep], *between]
        right = [*second[:keep_second], *self._end]
        return [*left, *right] or [self._tokenizer.pad_id], [0] * len(left) + [1] * len(right)


def _words(encoding: Encoding) -> list[int]:
    """The ids without special tokens."""
    marks: list[int] = encoding.special_tokens_mask
    ids: list[int] = encoding.ids
    return [token for token, special in zip(ids, marks, strict=True) if not special]


def _shares(first: int, second: int, room: int) -> tuple[int, int]:
    """Number of tokens kept of each text, where the longer one is cut until both fit."""
    if first + second <= room:
        return first, second
    half = room // 2
    if first <= half:
        return first, room - first
    if second <= half:
        return room - second, second
    return room - half, half

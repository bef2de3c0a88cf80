"""Texts as padded arrays of token ids."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding

from training.common.sentences import sentence_starts
from training.models.config import TextPreprocessingConfig
from training.models.inputs.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Truncation:
    """How a text was cut.

    Attributes:
        tokens: Of the whole text, special tokens included.
        kept: Of these.
        searched_text: The beginning of the text that the kept tokens cover.
    """

    tokens: int
    kept: int
    searched_text: str


@dataclass(frozen=True, slots=True)
class TokenArrays:
    """Texts as ids.

    Attributes:
        input_ids: (B, T) int64.
        attention_mask: (B, T) int64, 1 where a token is real and 0 at padding.
        truncations: Of each text; None where nothing was cut.
        sentence_ids: (B, T) int64, the number of each token's sentence; -1 at padding and special tokens.
            A text without words is one sentence. None: texts are not cut into sentences.
        sentence_count: Of the text with the most; 0: texts are not cut into sentences.
        local_counts: Number of sentences with a token, or of tokens, of each text.
    """

    input_ids: NDArray[np.int64]
    attention_mask: NDArray[np.int64]
    truncations: tuple[Truncation | None, ...]
    local_counts: tuple[int, ...]
    sentence_ids: NDArray[np.int64] | None = None
    sentence_count: int = 0


class TextTokens:
    """Tokenises texts, cuts those over the limit of tokens, and pads to the longest."""

    def __init__(self, config: TextPreprocessingConfig, tokenizer: Tokenizer) -> None:
        self.config = config
        self.tokenizer = tokenizer

    def __call__(self, texts: Sequence[str | Sequence[str]]) -> TokenArrays:
        """Arrays of ids, and how each text was cut.

        Args:
            texts: Each whole, or as its sentences, which are joined by spaces.
        """
        wholes = [text if isinstance(text, str) else " ".join(filter(str.strip, text)) for text in texts]
        rows: list[list[int]] = []
        sentences: list[list[int]] = []
        truncations: list[Truncation | None] = []
        for text, whole, encoding in zip(texts, wholes, self.tokenizer.encode(wholes), strict=True):
            ids = encoding.ids
            end, rest, truncation = _cut(whole, encoding, self.config.max_tokens)
            # A tokenizer without special tokens gives an empty text no ids, but a tower needs one.
            rows.append(ids[:end] + ids[rest:] or [self.tokenizer.pad_id])
            truncations.append(truncation)
            if self.config.sentences:
                numbers = _token_sentences(text, whole, encoding)
                numbers = numbers[:end] + numbers[rest:]
                sentences.append(numbers if max(numbers, default=-1) >= 0 else [0] * len(rows[-1]))
        shape = len(rows), max(map(len, rows), default=0)
        input_ids, mask = np.full(shape, self.tokenizer.pad_id, np.int64), np.zeros(shape, np.int64)
        for index, row in enumerate(rows):
            input_ids[index, : len(row)], mask[index, : len(row)] = row, 1
        if not self.config.sentences:
            return TokenArrays(input_ids, mask, tuple(truncations), tuple(map(len, rows)))
        sentence_ids = np.full(shape, -1, np.int64)
        for index, row in enumerate(sentences):
            sentence_ids[index, : len(row)] = row
        counts = tuple(len({*row} - {-1}) for row in sentences)
        count = 1 + max(map(max, sentences), default=0)
        return TokenArrays(input_ids, mask, tuple(truncations), counts, sentence_ids, count)


def _token_sentences(text: str | Sequence[str], whole: str, encoding: Encoding) -> list[int]:
    """The number of each token's sentence; -1 for a special token."""
    if isinstance(text, str):
        starts = sentence_starts(text)
    else:
        ends = accumulate(len(sentence) + 1 for sentence in text if sentence.strip())
        # What would follow the last one begins no sentence.
        starts = [0, *ends][:-1] or [0]
    numbers = []
    for (start, stop), special in zip(encoding.offsets, encoding.special_tokens_mask, strict=True):
        # Its last character counts, or what follows a token of white space.
        place = stop if whole[start:stop].isspace() else max(start, stop - 1)
        numbers.append(-1 if special else bisect_right(starts, place) - 1)
    return numbers


def _cut(text: str, encoding: Encoding, limit: int) -> tuple[int, int, Truncation | None]:
    """Where tokens are left out, up to where, and how the text was cut, if it was."""
    count = len(encoding.ids)
    if count <= limit:
        return count, count, None
    ending = _special_suffix(encoding.special_tokens_mask)
    last = limit - ending
    # A token may hold part of a character; the text ends before the first that is not whole.
    end = min(max((stop for _, stop in encoding.offsets[:last]), default=0), encoding.offsets[last][0])
    return last, count - ending, Truncation(count, limit, text[:end])


def _special_suffix(special: list[int]) -> int:
    return next((count for count, flag in enumerate(reversed(special)) if not flag), len(special))

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


@dataclass(frozen=True, slots=True)
class _Kept:
    """The tokens of a text that are kept: their ids, the sentence of each, and how the text was cut."""

    ids: list[int]
    sentences: list[int]
    truncation: Truncation | None


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
        items = [_joined(text, split=self.config.sentences) for text in texts]
        rows = [
            self._keep(text, starts, encoding)
            for (text, starts), encoding in zip(
                items, self.tokenizer.encode([text for text, _ in items]), strict=True
            )
        ]
        length = max((len(row.ids) for row in rows), default=0)
        input_ids = np.full((len(rows), length), self.tokenizer.pad_id, np.int64)
        mask = np.zeros((len(rows), length), np.int64)
        sentences = np.full((len(rows), length), -1, np.int64)
        for index, row in enumerate(rows):
            input_ids[index, : len(row.ids)] = row.ids
            mask[index, : len(row.ids)] = 1
            sentences[index, : len(row.ids)] = row.sentences
        truncations = tuple(row.truncation for row in rows)
        if not self.config.sentences:
            return TokenArrays(input_ids, mask, truncations, tuple(len(row.ids) for row in rows))
        count = 1 + max((max(row.sentences) for row in rows), default=0)
        counts = tuple(len({sentence for sentence in row.sentences if sentence >= 0}) for row in rows)
        return TokenArrays(input_ids, mask, truncations, counts, sentences, count)

    def _keep(self, text: str, starts: Sequence[int], encoding: Encoding) -> _Kept:
        positions, truncation = _cut(text, encoding, self.config.max_tokens)
        all_ids, all_sentences = encoding.ids, _token_sentences(text, encoding, starts)
        # A tokenizer without special tokens gives an empty text no ids, but a tower needs one.
        ids = [all_ids[position] for position in positions] or [self.tokenizer.pad_id]
        sentences = [all_sentences[position] for position in positions]
        if all(sentence < 0 for sentence in sentences):
            sentences = [0] * len(ids)
        return _Kept(ids, sentences, truncation)


def _joined(text: str | Sequence[str], *, split: bool) -> tuple[str, Sequence[int]]:
    """A text and where its sentences begin."""
    if isinstance(text, str):
        return text, sentence_starts(text) if split else (0,)
    sentences = [sentence for sentence in text if sentence.strip()]
    return " ".join(sentences), list(accumulate((len(s) + 1 for s in sentences[:-1]), initial=0))


def _token_sentences(text: str, encoding: Encoding, starts: Sequence[int]) -> list[int]:
    """The number of each token's sentence; -1 for a special token."""
    return [
        -1 if special else bisect_right(starts, _place(text, start, stop)) - 1
        for (start, stop), special in zip(encoding.offsets, encoding.special_tokens_mask, strict=True)
    ]


def _place(text: str, start: int, stop: int) -> int:
    """A place in the sentence of a token: its last character, or what follows when it is only white space."""
    return stop if text[start:stop].isspace() else max(start, stop - 1)


def _cut(text: str, encoding: Encoding, limit: int) -> tuple[Sequence[int], Truncation | None]:
    """The positions of the tokens that are kept, and how the text was cut, if it was."""
    count = len(encoding.ids)
    if count <= limit:
        return range(count), None
    ending = _special_suffix(encoding.special_tokens_mask)
    last = limit - ending
    # A token may hold part of a character; the text ends before the first that is not whole.
    end = min(max((stop for _, stop in encoding.offsets[:last]), default=0), encoding.offsets[last][0])
    return [*range(last), *range(count - ending, count)], Truncation(count, limit, text[:end])


def _special_suffix(special: list[int]) -> int:
    return next((count for count, flag in enumerate(reversed(special)) if not flag), len(special))

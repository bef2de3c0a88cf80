"""Tokenize texts into padded arrays, without torch."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding
from tokenizers import Tokenizer as BackendTokenizer

from training.common.errors import BundleError
from training.common.sentences import sentence_starts
from training.models.config import TextPreprocessingConfig

# Special tokens of a learned tokenizer.
PAD: Final = "<pad>"
START: Final = "<start>"
END: Final = "<end>"


class Tokenizer:
    """A tokenizer with the ids that towers need; it doesn't truncate or pad.

    Attributes:
        pad_id: Padding.
        cls_id: First token of every text; None if there is none.
        eos_id: Last token of every text; None if there is none.
    """

    def __init__(self, backend: BackendTokenizer, pad_id: int) -> None:
        backend.no_truncation()
        backend.no_padding()
        # The name of a special token in a text is read as letters, not as the token.
        backend.encode_special_tokens = True
        empty = backend.encode("").ids
        self._backend = backend
        self.pad_id = pad_id
        self.cls_id: int | None = empty[0] if len(empty) > 1 else None
        self.eos_id: int | None = empty[-1] if empty else None

    @property
    def size(self) -> int:
        """Vocabulary size."""
        return max(self._backend.get_vocab(with_added_tokens=True).values()) + 1

    def encode(self, texts: Sequence[str]) -> list[Encoding]:
        """Ids (special tokens included), special-token mask and character offsets of each whole text."""
        encodings: list[Encoding] = self._backend.encode_batch(list(texts))
        return encodings

    def to_json(self) -> str:
        """Serialize the tokenizer; equal tokenizers give equal text."""
        copy = BackendTokenizer.from_str(self._backend.to_str())
        copy.enable_padding(pad_id=self.pad_id, pad_token=self._backend.id_to_token(self.pad_id))
        return str(copy.to_str(pretty=True))

    @classmethod
    def from_json(cls, text: str) -> "Tokenizer":
        """Restore what `to_json` wrote.

        Raises:
            BundleError: The text is no tokenizer, or has no padding token.
        """
        try:
            backend = BackendTokenizer.from_str(text)
        except Exception as error:
            raise BundleError(f"The tokenizer cannot be read ({error}): make the bundle again.") from error
        if backend.padding is None:
            raise BundleError("The tokenizer names no padding token: make the bundle again.")
        return cls(backend, backend.padding["pad_id"])


@dataclass(frozen=True, slots=True)
class Truncation:
    """How a text was truncated: its tokens, how many were kept, and the beginning that those cover."""

    tokens: int
    kept: int
    searched_text: str


@dataclass(frozen=True, slots=True)
class TokenArrays:
    """A batch of tokenized texts.

    Attributes:
        input_ids: (B, T) int64.
        attention_mask: (B, T) int64, 1 where a token is real and 0 at padding.
        truncations: One per text; None if nothing was cut.
        sentence_ids: (B, T) int64, each token's sentence number; -1 at padding and special tokens. A text
            without words is one sentence. None: texts aren't split into sentences.
        sentence_count: Most sentences in a text; 0: texts aren't split.
        local_counts: Number of sentences with a token, or of tokens, of each text.
    """

    input_ids: NDArray[np.int64]
    attention_mask: NDArray[np.int64]
    truncations: tuple[Truncation | None, ...]
    local_counts: tuple[int, ...]
    sentence_ids: NDArray[np.int64] | None = None
    sentence_count: int = 0


class TextTokens:
    """Tokenize texts, truncate those over the token limit, and pad to the longest."""

    def __init__(self, config: TextPreprocessingConfig, tokenizer: Tokenizer) -> None:
        self.config = config
        self.tokenizer = tokenizer

    def __call__(self, texts: Sequence[str | Sequence[str]]) -> TokenArrays:
        """Tokenize texts, each given whole or as its sentences."""
        wholes = [text if isinstance(text, str) else " ".join(filter(str.strip, text)) for text in texts]
        rows: list[list[int]] = []
        sentences: list[list[int]] = []
        truncations: list[Truncation | None] = []
        for text, whole, encoding in zip(texts, wholes, self.tokenizer.encode(wholes), strict=True):
            ids = encoding.ids
            end, rest, truncation = _cut(whole, encoding, self.config.max_tokens)
            # Without special tokens an empty text has no ids, but a tower needs one.
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
    """Sentence number of each token; -1 for special tokens."""
    if isinstance(text, str):
        starts = sentence_starts(text)
    else:
        ends = accumulate(len(sentence) + 1 for sentence in text if sentence.strip())
        # No sentence starts after the last one.
        starts = [0, *ends][:-1] or [0]
    numbers = []
    for (start, stop), special in zip(encoding.offsets, encoding.special_tokens_mask, strict=True):
        # A token belongs to the sentence of its last character; white space to the next.
        position = stop if whole[start:stop].isspace() else max(start, stop - 1)
        numbers.append(-1 if special else bisect_right(starts, position) - 1)
    return numbers


def _cut(text: str, encoding: Encoding, limit: int) -> tuple[int, int, Truncation | None]:
    """Start and end of the omitted tokens, and the truncation if there is one."""
    count = len(encoding.ids)
    if count <= limit:
        return count, count, None
    ending = _special_suffix(encoding.special_tokens_mask)
    last = limit - ending
    # A token may be part of a character; the kept text ends before the first incomplete one.
    end = min(max((stop for _, stop in encoding.offsets[:last]), default=0), encoding.offsets[last][0])
    return last, count - ending, Truncation(count, limit, text[:end])


def _special_suffix(special: list[int]) -> int:
    return next((count for count, flag in enumerate(reversed(special)) if not flag), len(special))


@dataclass(frozen=True, slots=True)
class TextEmbeddings:
    """Vectors (B, D) float32 of texts, their truncations, and their numbers of embedded tokens."""

    vectors: NDArray[np.float32]
    truncations: tuple[Truncation | None, ...]
    tokens: tuple[int, ...]

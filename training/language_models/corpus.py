"""Sentences of plain text files, the words that are told apart, and batches of both."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from training.common.errors import DataError
from training.common.rejections import Rejections, Usable
from training.tasks.loader import ItemLoader

PAD: Final = 0
UNKNOWN: Final = 1
START: Final = 2
END: Final = 3
_SPECIAL: Final = 4
# Token of words outside the vocabulary in the Penn Treebank as it is distributed for language models.
_UNKNOWN_WORD: Final = "<unk>"


def read_corpus(path: Path, *, max_rejected: float = 1.0) -> Usable[str]:
    """Read a file with one sentence a line, words with blanks between them; empty lines are passed over.

    Args:
        path: Path of the file.
        max_rejected: Largest share of lines that are no UTF-8.

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


def fingerprint(sentences: Iterable[str]) -> str:
    """SHA-256 over sentences in their order."""
    digest = hashlib.sha256()
    for sentence in sentences:
        digest.update(sentence.encode() + b"\n")
    return digest.hexdigest()


class Vocabulary:
    """The words that a model tells apart, as they stand in the text; all others are one unknown word.

    Args:
        words: Words in the order of their ids, which follow those of the special tokens.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self._ids = {word: number for number, word in enumerate(words, start=_SPECIAL)}

    @classmethod
    def learned(cls, sentences: Iterable[str], size: int) -> "Vocabulary":
        """The most frequent words of sentences.

        Args:
            sentences: Sentences of the train split only.
            size: Upper bound, special tokens included.
        """
        counts = Counter(word for sentence in sentences for word in sentence.split())
        del counts[_UNKNOWN_WORD]
        words = sorted(counts, key=lambda word: (-counts[word], word))
        return cls(words[: size - _SPECIAL])

    def __len__(self) -> int:
        """Number of ids."""
        return _SPECIAL + len(self._ids)

    def ids(self, sentence: str, max_words: int) -> list[int]:
        """Start, the words of a sentence, and end."""
        words = sentence.split()[:max_words]
        return [START, *(self._ids.get(word, UNKNOWN) for word in words), END]


@dataclass(frozen=True, slots=True)
class SentenceBatch:
    """Sentences as ids.

    Attributes:
        ids: (B, T) int64, padded to the longest.
        lengths: (B,) int64, how many ids of each are real.
        items: (B,) int64, numbers of the sentences.
    """

    ids: Tensor
    lengths: Tensor
    items: Tensor

    def tensors(self, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
        """Ids and items on a device; lengths stay on the CPU, where words are counted by them."""
        ids, items = (part.to(device, non_blocking=True) for part in (self.ids, self.items))
        return ids, self.lengths, items


@dataclass(kw_only=True)
class SentenceLoader(ItemLoader[str, SentenceBatch]):
    """Batches of sentences, as ids of a vocabulary; those with more than `max_words` words are cut."""

    vocabulary: Vocabulary
    max_words: int

    def batch(self, places: Sequence[int]) -> SentenceBatch:
        """The sentences at these places."""
        rows = [self.vocabulary.ids(self.items[place], self.max_words) for place in places]
        lengths = torch.tensor([len(row) for row in rows])
        ids = torch.full((len(rows), int(lengths.max())), PAD)
        for index, row in enumerate(rows):
            ids[index, : len(row)] = torch.tensor(row)
        return SentenceBatch(ids, lengths, torch.tensor(places))

    def length(self, place: int) -> int:
        """Words of a sentence that are read."""
        return min(self.max_words, len(self.items[place].split()))

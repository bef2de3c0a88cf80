"""CLIP's own tokenizer as open_clip has it, from the merges of a folder alone."""

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

import torch
from torch import Tensor

# Fractions and Roman numerals of one character are letters here; the texts of the proof have none.
_WORD: Final = re.compile(r"'s|'t|'re|'ve|'m|'ll|'d|[^\W\d_]+|\d|(?:[^\s\w]|_)+")
_END: Final = "</w>"
_PADDING: Final = 0


class BytePairs:
    """Ids by the order of CLIP's vocabulary: bytes, bytes that end a word, merges, start and end of a text.

    Args:
        merges: Pairs, those that are merged first in front.
    """

    def __init__(self, merges: Iterable[tuple[str, str]]) -> None:
        self._letters = _letters()
        self._ranks = {pair: rank for rank, pair in enumerate(merges)}
        letters = list(self._letters.values())
        pieces = [*letters, *(letter + _END for letter in letters), *("".join(pair) for pair in self._ranks)]
        self._ids = {piece: number for number, piece in enumerate(pieces)}
        self._start, self._stop = len(pieces), len(pieces) + 1

    def __call__(self, texts: Sequence[str], length: int) -> Tensor:
        """Ids (B, length) of texts, the last of which ends a text that is cut."""
        ids = torch.full((len(texts), length), _PADDING)
        for row, text in zip(ids, texts, strict=True):
            words = _WORD.findall(text.lower())
            found = [self._start, *(number for word in words for number in self._read(word)), self._stop]
            if len(found) > length:
                found = [*found[: length - 1], self._stop]
            row[: len(found)] = torch.tensor(found)
        return ids

    def _read(self, word: str) -> list[int]:
        pieces = [self._letters[value] for value in word.encode()]
        pieces[-1] += _END
        while known := [pair for pair in pairwise(pieces) if pair in self._ranks]:
            pieces = _merged(pieces, min(known, key=self._ranks.__getitem__))
        return [self._ids[piece] for piece in pieces]


def _merged(pieces: Sequence[str], pair: tuple[str, str]) -> list[str]:
    """The pieces with every occurrence of a pair as one, from the left."""
    merged: list[str] = []
    place = 0
    while place < len(pieces):
        here = tuple(pieces[place : place + 2]) == pair
        merged.append("".join(pair) if here else pieces[place])
        place += 2 if here else 1
    return merged


def _letters() -> dict[int, str]:
    """A printable character for every byte, those that are printable themselves in front."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [value for value in range(256) if value not in set(printable)]
    return {value: chr(value) for value in printable} | {
        value: chr(256 + number) for number, value in enumerate(others)
    }

"""Answers as people gave them: brought to one form, counted, and scored."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import torch
from torch import Tensor

_ARTICLES: Final = frozenset({"a", "an", "the"})
_SMALL: Final = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_DIGITS: Final[Mapping[str, str]] = MappingProxyType(
    {"none": "0", **{word: str(number) for number, word in enumerate(_SMALL)}}
)
_WITHIN_NUMBER: Final = re.compile(r"(?<=\d),(?=\d)")
_STOP: Final = re.compile(r"\.(?!\d)")
_PUNCTUATION: Final = re.compile(r"[;/\[\]\"{}()=+\\_\-<>@`,?!]")
# Number of people whose agreement makes an answer fully right (Antol et al. 2015).
_AGREEING: Final = 3


def normalised(answer: str) -> str:
    """An answer in lower case, without articles and punctuation, with digits for small numbers."""
    text = _WITHIN_NUMBER.sub("", answer.lower())
    words = _PUNCTUATION.sub(" ", _STOP.sub("", text)).split()
    return " ".join(_DIGITS.get(word, word) for word in words if word not in _ARTICLES)


def answer_vocabulary(most_frequent: Iterable[str], min_count: int) -> tuple[str, ...]:
    """The answers to choose from, most frequent first.

    Args:
        most_frequent: The most frequent answer to each training question.
        min_count: Minimum number of questions with that most frequent answer.
    """
    counts = Counter(most_frequent)
    kept = [answer for answer, count in counts.items() if count >= min_count]
    return tuple(sorted(kept, key=lambda answer: (-counts[answer], answer)))


def soft_scores(given: Sequence[str], numbers: Mapping[str, int]) -> Tensor:
    """(A,), of each answer to choose from, `min(1, people who gave it / 3)`.

    Args:
        given: One answer of each person.
        numbers: Places of the answers to choose from.
    """
    scores = torch.zeros(len(numbers))
    for answer, people in Counter(given).items():
        if answer in numbers:
            scores[numbers[answer]] = min(1.0, people / _AGREEING)
    return scores

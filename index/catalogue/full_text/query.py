"""Words as a person types them, and the places of texts that they match."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from index.catalogue.full_text.inflection import (
    MIN_COMPOUND,
    beginnings,
    has_beginning,
    has_part,
    inflections,
    is_compound,
    spellings,
    stems,
    write_digraphs,
)
from index.catalogue.full_text.tokenizer import (
    MAX_WORD_LENGTH,
    fold,
    fold_aligned,
    indexed_pieces,
    split_words,
)

# Limit of different words in a query: each is looked up by itself.
MAX_WORDS: Final = 64
# Characters of a run without spaces that count as one word.
_RUN_WORD: Final = 32
# Parts of compounds are looked for for the first words of a query: each is compared with all known words.
_MAX_PARTS: Final = 16
# English and German words that say nothing of an image; negations are none of them.
_FUNCTION_WORDS: Final = re.compile(
    "an?|and|are|as|at|by|for|from|has|have|in|is|its?|of|on|or|that|the|there|this|to|was|were|which|with|"
    "am|auf|beim?|das|de[mnrs]|die|eine?|eine[mnrs]|im|ist|mit|oder|sind|und|vo[mn]|zu[mr]?"
)


@dataclass(frozen=True, slots=True)
class QueryWord:
    """A word of a query.

    Attributes:
        text: The word or the run, folded.
        typed: The same as it was typed.
        unspaced: Whether it is a run of a script without spaces, which matches inside any other run.
        inflections: Its singular and plural, and these with umlauts written in another way.
        stems: Parts of compounds that it matches.
        beginnings: Beginnings of words that it matches.
    """

    text: str
    typed: str
    unspaced: bool
    inflections: tuple[str, ...] = ()
    stems: tuple[str, ...] = ()
    beginnings: tuple[str, ...] = ()

    def is_part_of(self, word: str) -> bool:
        """Tell whether a folded word is a compound or a longer form of this one, not its plural."""
        if word in (self.text, *self.inflections):
            return False
        return _is_compound_of(word, self.stems, self.beginnings)


@dataclass(frozen=True, slots=True)
class WordQuery:
    """The different words of a query.

    Attributes:
        words: In order.
        runs: Those of scripts without spaces.
        forms: The others with their singular and plural.
        stems: Parts of compounds that match.
        beginnings: Beginnings of words that match.
    """

    words: tuple[QueryWord, ...]
    runs: tuple[str, ...]
    forms: frozenset[str]
    stems: tuple[str, ...]
    beginnings: tuple[str, ...]

    @property
    def size(self) -> int:
        """Number of words; a long run counts as several."""
        return sum(-(-len(word.text) // _RUN_WORD) if word.unspaced else 1 for word in self.words)

    def matches(self, text: str) -> bool:
        """Tell whether a text has any of the words."""
        folded = fold(text)
        if any(run in folded for run in self.runs) or not self.forms.isdisjoint(indexed_pieces(folded)):
            return True
        stems = [stem for stem in self.stems if stem in folded]
        begun = [beginning for beginning in self.beginnings if beginning in folded]
        return any(_is_compound_of(word, stems, begun) for word in indexed_pieces(folded))

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return the places (start, end) of matched words and parts of runs in a text, in order and apart."""
        folded = fold_aligned(text)
        found: list[tuple[int, int]] = []
        for start, end in sorted(self._places(folded.text)):
            first, last = folded.starts[start], folded.ends[end - 1]
            if found and first < found[-1][1]:
                found[-1] = found[-1][0], max(found[-1][1], last)
            else:
                found.append((first, last))
        return found

    def _places(self, folded: str) -> Iterator[tuple[int, int]]:
        for word in split_words(folded):
            if not word.unspaced:
                cut = word.text[:MAX_WORD_LENGTH]
                if cut in self.forms or _is_compound_of(cut, self.stems, self.beginnings):
                    yield word.start, word.end
                continue
            for run in self.runs:
                place = word.text.find(run)
                while place >= 0:
                    yield word.start + place, word.start + place + len(run)
                    place = word.text.find(run, place + 1)


@lru_cache(maxsize=64)
def parse_words(words: str) -> WordQuery:
    """Read what a person typed; nothing of it is syntax. Function words count only alone."""
    typed: dict[str, tuple[str, bool, str]] = {}
    folded = fold_aligned(words)
    # Both have as many words: letters alone take the place of letters.
    written = split_words(fold(write_digraphs(words)))
    for word, other in zip(split_words(folded.text), written, strict=True):
        text = word.text if word.unspaced else word.text[:MAX_WORD_LENGTH]
        spelt = words[folded.starts[word.start] : folded.ends[word.end - 1]]
        typed.setdefault(text, (spelt, word.unspaced, other.text[:MAX_WORD_LENGTH]))
    content = {text: own for text, own in typed.items() if not _FUNCTION_WORDS.fullmatch(text)}
    found: list[QueryWord] = []
    parts = 0
    for text, (spelt, is_run, digraphs) in (content or typed).items():
        if is_run:
            found.append(QueryWord(text, spelt, unspaced=True))
            continue
        spelled = spellings(text, digraphs)
        own = list(stems(text))
        if len(spelled) == 1:
            own = list(dict.fromkeys([*own, *stems(spelled[0])]))
        own = own if parts < _MAX_PARTS else []
        parts += bool(own)
        # Of many spellings few are words: these are looked up as they are.
        spelled += inflections(spelled[0]) if len(spelled) == 1 else []
        forms = tuple(form for form in dict.fromkeys([*inflections(text), *spelled]) if form != text)
        found.append(QueryWord(text, spelt, False, forms, tuple(own), tuple(beginnings(text))))
    return WordQuery(
        tuple(found),
        tuple(word.text for word in found if word.unspaced),
        frozenset(form for word in found if not word.unspaced for form in (word.text, *word.inflections)),
        tuple(dict.fromkeys(stem for word in found for stem in word.stems)),
        tuple(dict.fromkeys(beginning for word in found for beginning in word.beginnings)),
    )


def _is_compound_of(word: str, parts: Sequence[str], begun: Sequence[str]) -> bool:
    if not (parts or begun) or not is_compound(word):
        return False
    is_part = word.isalpha() and len(word) >= MIN_COMPOUND and any(has_part(word, part) for part in parts)
    return is_part or any(has_beginning(word, beginning) for beginning in begun)


def tokens(words: str) -> list[str]:
    """Split what a person typed into its different words and runs, folded and in order."""
    return [word.text for word in parse_words(words).words]


def matched_spans(text: str, words: str) -> list[tuple[int, int]]:
    """Return where a text has words that a query matches, for marking them.

    Args:
        text: As it is stored.
        words: As typed, without query syntax.

    Returns:
        Places (start, end) in characters of `text`, in order and without overlaps.
    """
    return parse_words(words).spans(text)

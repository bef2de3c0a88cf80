"""Words of texts and of queries, the same on every database, and which words match.

A word is a run of letters, digits and their marks. Runs of Han, Kana, Hangul, Thai, Lao, Khmer and Burmese
contain several words: they are indexed as their overlapping pairs of characters and their last character, so
that any part of a run is a phrase of pairs, or the beginning of a pair.

A word of a query also finds its other forms: singular and plural of English and German, parts of German
compounds, words of other alphabets by their beginnings, and letters with digits behind them.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise
from typing import Final, NamedTuple

from training.common.sentences import UNSPACED

# Limit of an image's text in characters.
MAX_CHARACTERS: Final = 200_000
# PostgreSQL takes words of up to 2,047 bytes, of which a character may need four.
MAX_WORD_LENGTH: Final = 500
# A tsvector holds 1,048,575 bytes.
_MAX_BYTES: Final = 1_000_000
# Bytes of a tsvector for a new word, besides its letters, and for a position of a word, with alignment.
_WORD_BYTES, _POSITION_BYTES = 4, 2
# Characters whose pairs fit, if each of them is another one of eight bytes.
_SURELY_FITS: Final = _MAX_BYTES // (8 + _WORD_BYTES + _POSITION_BYTES)
# The first letters of each word.
_ASCII_WORD: Final = re.compile(f"([a-z0-9]{{1,{MAX_WORD_LENGTH}}})[a-z0-9]*")

# Accents of Latin, Greek and Cyrillic, points of Hebrew and Arabic, variation selectors, soft hyphens.
_LEFT_OUT: Final = re.compile(
    "[\u00ad\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u061c\u0640"
    "\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u1ab0-\u1aff\u1dc0-\u1dff\u200c-\u200f\u202a-\u202e\u2060-\u206f\u20d0-\u20f0\u2de0-\u2dff\u3164\ufe00-\ufe0f"
    "\ufe20-\ufe2f\ufeff\uffa0\U000e0000-\U000e0fff]"
)
# Letters of Turkish, Polish, Vietnamese, Danish and others whose accents are parts of them.
_STROKED: Final = str.maketrans(
    {"ı": "i", "ł": "l", "đ": "d", "ø": "o", "ħ": "h", "ŧ": "t", "æ": "ae", "œ": "oe"}
)
_FIRST_MARK: Final = 0x300
_LAST_MARK: Final = 0x1FFFF
# Vowels and final consonants of decomposed Hangul, which join the character before.
_JOINING_JAMO: Final = range(0x1160, 0x1200)
# Endings of singular and plural, and the fewest letters before them. Umlauts are folded: "erguss", "ergusse".
_ENDINGS: Final = (
    ("", "s", 3),
    ("", "es", 3),
    ("", "e", 4),
    ("", "en", 4),
    ("", "er", 4),
    ("", "n", 4),
    ("", "se", 4),
    ("y", "ies", 3),
    ("f", "ves", 3),
    ("fe", "ves", 2),
    ("is", "es", 3),
    ("us", "i", 3),
    ("us", "en", 4),
    ("um", "a", 3),
    ("um", "en", 4),
    ("on", "a", 5),
    ("a", "ae", 3),
    ("a", "en", 4),
    ("x", "ces", 4),
    ("ix", "ices", 4),
    ("ex", "ices", 4),
    ("in", "innen", 4),
    ("man", "men", 0),
)
_IRREGULAR: Final = (
    ("child", "children"),
    ("foot", "feet"),
    ("goose", "geese"),
    ("mouse", "mice"),
    ("person", "people"),
    ("tooth", "teeth"),
)
# A word that is looked for inside others has so many letters, as it is and with an ending taken off.
_PART_LENGTH: Final = 4
_STEM_LENGTH: Final = 5
# Letters before a part inside a word, and after one at its beginning: "abnormal" is no "normal".
_REST_LENGTH: Final = 3
_NEGATIONS: Final = frozenset(("dis", "dys", "mis", "non"))
# Endings of Russian and its neighbours, folded, and of Greek: what is before them begins the other forms.
_OTHER_ENDING: Final = re.compile(
    "(?:ого|его|ому|ему|[аяыи]ми|[аяыи]х|[аяоеыи]м|[оеё]в|[аеиоуыэюяйьъії]+|[αεηιουω]+[σν]?)$"
)
_OTHER_STEM: Final = 4
# Letters behind the stem in another form of a word.
_OTHER_REST: Final = 4
_DIGITS: Final = tuple("0123456789")
_NUMBERED: Final = re.compile(r"[^\W\d_]{2,}[0-9]\w*")
_DIGRAPHS: Final = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue"})
# After a, e and q, ue is no umlaut: "Dauer", "neue", "Frequenz".
_DIGRAPH: Final = re.compile("[ao]e|(?<![aeq])ue")
# A vowel that may have lost its dots, not before another one.
_VOWEL: Final = re.compile("[aou](?![aeiou])|a(?=u)")
_MAX_VOWELS: Final = 3
_SPELLED_LENGTH: Final = 4
# Words of so many letters may be compounds.
MIN_COMPOUND: Final = _PART_LENGTH + _REST_LENGTH
MAX_COMPOUND: Final = 60
# Limit of different words in a query: each is looked up by itself.
MAX_WORDS: Final = 64
# Characters of a run without spaces that count as one word.
_RUN_WORD: Final = 32
# Compounds are looked up for the first words of a query: each is compared with the whole vocabulary.
_MAX_PARTS: Final = 16
# English and German words that say nothing of an image; negations are none of them.
_FUNCTION_WORDS: Final = re.compile(
    "an?|and|are|as|at|by|for|from|has|have|in|is|its?|of|on|or|that|the|there|this|to|was|were|which|with|"
    "am|auf|beim?|das|de[mnrs]|die|eine?|eine[mnrs]|im|ist|mit|oder|sind|und|vo[mn]|zu[mr]?"
)


class Word(NamedTuple):
    """A word of a folded text and its position there; `unspaced` if it is a run without spaces."""

    text: str
    start: int
    end: int
    unspaced: bool


class FoldedText(NamedTuple):
    """A folded text; its character i represents those from `starts[i]` to `ends[i]` of the original."""

    text: str
    starts: list[int]
    ends: list[int]


def fold(text: str) -> str:
    """Return a text without the differences that words are compared without.

    Compatibility forms (full width, ligatures), case, accents and invisible characters are folded.
    """
    if text.isascii():
        return text.lower()
    plain = unicodedata.normalize("NFD", unicodedata.normalize("NFKC", text).casefold())
    return unicodedata.normalize("NFC", _LEFT_OUT.sub("", plain)).translate(_STROKED)


def fold_aligned(text: str) -> FoldedText:
    """Fold a text, and keep where its characters come from."""
    if text.isascii():
        return FoldedText(text.lower(), list(range(len(text))), list(range(1, len(text) + 1)))
    parts: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    borders = [index for index, character in enumerate(text) if index == 0 or not _joins(character)]
    for start, end in pairwise([*borders, len(text)]):
        part = fold(text[start:end])
        parts.append(part)
        starts += [start] * len(part)
        ends += [end] * len(part)
    return FoldedText("".join(parts), starts, ends)


def split_words(folded: str) -> Iterator[Word]:
    """Give the words and runs of a folded text in order."""
    for match in _pattern().finditer(folded):
        yield Word(match.group(), match.start(), match.end(), match.lastgroup == "run")


def pieces(text: str) -> list[str]:
    """Return the pieces of a text in order, as they are indexed: its words, and the pairs of its runs."""
    return indexed_pieces(fold(text))


def pairs(run: str) -> list[str]:
    """Return the overlapping pairs of characters of a run; none of a single character."""
    return [run[start : start + 2] for start in range(len(run) - 1)]


def indexed_text(text: str) -> str:
    """Return the folded beginning of an image's text whose pieces fit into the index of either database."""
    folded = fold(text[:MAX_CHARACTERS])
    while len(folded) > _SURELY_FITS and _size(indexed_pieces(folded)) > _MAX_BYTES:
        folded = folded[: len(folded) * 3 // 4]
    return folded


def indexed_pieces(folded: str) -> list[str]:
    """Return the pieces of a folded text in order."""
    if folded.isascii():
        return _ASCII_WORD.findall(folded)
    tokens: list[str] = []
    for word in split_words(folded):
        if word.unspaced:
            tokens += pairs(word.text)
            tokens.append(word.text[-1])
        else:
            tokens.append(word.text[:MAX_WORD_LENGTH])
    return tokens


def runs(folded: str) -> str:
    """Return the runs of a folded text that are longer than a pair, with spaces between them."""
    if folded.isascii():
        return ""
    return " ".join(word.text for word in split_words(folded) if word.unspaced and len(word.text) > 2)


def _size(tokens: list[str]) -> int:
    words = sum(len(word.encode()) + _WORD_BYTES for word in set(tokens))
    return words + _POSITION_BYTES * len(tokens)


def _joins(character: str) -> bool:
    """Return whether a character may be composed with those before it, or is left out."""
    first = unicodedata.normalize("NFKC", character)[0]
    return (
        unicodedata.category(character)[0] == "M"
        or unicodedata.category(first)[0] == "M"
        or ord(first) in _JOINING_JAMO
        or _LEFT_OUT.match(character) is not None
    )


@cache
def _pattern() -> re.Pattern[str]:
    unspaced = re.compile(f"[{UNSPACED}]")
    marks = "".join(
        mark
        for mark in map(chr, range(_FIRST_MARK, _LAST_MARK))
        if unicodedata.category(mark)[0] == "M" and not unspaced.match(mark)
    )
    letters = rf"[^\W_{UNSPACED}]"
    return re.compile(rf"(?P<run>[{UNSPACED}]+)|{letters}+(?:[{marks}]+{letters}*)*")


def inflections(word: str) -> list[str]:
    """Return the folded words that may be the plural or the singular of a folded word."""
    if not _takes_endings(word):
        return []
    return list(dict.fromkeys([*_others(word, plural=True), *_others(word, plural=False)]))


def write_digraphs(text: str) -> str:
    """Return a text with the umlauts of German written with an e: "Ödem", "Oedem"."""
    return unicodedata.normalize("NFC", text).translate(_DIGRAPHS)


def spellings(word: str, written: str) -> list[str]:
    """Return the folded words that a folded word may be where umlauts are written in another way.

    Folding has taken the dots of umlauts away: "rontgen" means "roentgen", and "roentgen" means "rontgen". In
    words like "true" nothing shows that ue isn't an umlaut; the result is no word, and matches nothing.

    Args:
        word: Word of a query.
        written: The same with its umlauts written as digraphs, folded; the word itself where it has none.
    """
    if not _takes_endings(word) or len(word) < _SPELLED_LENGTH:
        return []
    if written != word:
        return [written]
    if _DIGRAPH.search(word):
        return [_DIGRAPH.sub(lambda variants: variants.group()[0], word)]
    variants = [word]
    for index in reversed([vowel.start() for vowel in _VOWEL.finditer(word)][:_MAX_VOWELS]):
        variants += [f"{one[: index + 1]}e{one[index + 1 :]}" for one in variants]
    return variants[1:]


def stems(word: str) -> list[str]:
    """Return the folded parts of compounds that a folded word matches; none of them contains another."""
    if not _takes_endings(word) or len(word) < _PART_LENGTH:
        return []
    singulars = (part for part in _others(word, plural=False) if len(part) >= _STEM_LENGTH)
    parts = sorted({word, *singulars}, key=len)
    return [part for index, part in enumerate(parts) if not any(other in part for other in parts[:index])]


def beginnings(word: str) -> list[str]:
    """Return the beginnings of other words that a folded word matches.

    Those of letters end in them, digits follow: "ctr" matches "ctr55". Those of other alphabets than
    Latin are without their ending, which in Russian and Greek depends on the case.
    """
    if not _is_of_letters(word) or len(word) < 2:
        return []
    if word.isascii() or len(word) < _OTHER_STEM:
        return [word]
    stem = _OTHER_ENDING.sub("", word)
    return [stem if len(stem) >= _OTHER_STEM else word]


def has_beginning(word: str, beginning: str) -> bool:
    """Return whether a digit or, in other alphabets, an ending follows `beginning` in a folded word."""
    if not word.startswith(beginning):
        return False
    rest = word[len(beginning) :]
    if rest[:1] in _DIGITS:
        return rest != ""
    return len(beginning) >= _OTHER_STEM and not beginning.isascii() and len(rest) <= _OTHER_REST


def is_compound(word: str) -> bool:
    """Return whether a folded word may be one that another word is a part or a beginning of."""
    if len(word) > MAX_COMPOUND:
        return False
    if word.isalpha() and len(word) >= MIN_COMPOUND:
        return True
    other = not word.isascii() and len(word) >= _OTHER_STEM and _is_of_letters(word)
    return other or _NUMBERED.fullmatch(word) is not None


def has_part(compound: str, stem: str) -> bool:
    """Return whether a folded compound begins with a stem, or has it behind another part."""
    if compound.startswith(stem) and len(compound) >= len(stem) + _REST_LENGTH:
        return True
    start = compound.find(stem, _REST_LENGTH)
    if start == _REST_LENGTH and compound[:_REST_LENGTH] in _NEGATIONS:
        start = compound.find(stem, start + 1)
    return start > 0


def _others(word: str, *, plural: bool) -> list[str]:
    """Return the words that may be the plural, or the singular, of a folded word."""
    forms = [pair[plural] for pair in _IRREGULAR if word == pair[not plural]]
    for one, many, fewest in _ENDINGS:
        ending, other = (one, many) if plural else (many, one)
        if many == "s" and word.endswith("s" if plural else "ss"):
            continue
        if word.endswith(ending) and len(word) - len(ending) >= fewest:
            forms.append(word.removesuffix(ending) + other)
    return forms


def _takes_endings(word: str) -> bool:
    return word.isascii() and word.isalpha()


def _is_of_letters(word: str) -> bool:
    """Return whether a word has letters alone, and the marks of its script."""
    return not any(sign.isdigit() for sign in word)


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
        """Return whether a folded word is a compound or a longer form of this one, not its plural."""
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
        """Return whether a text has any of the words."""
        folded = fold(text)
        if any(run in folded for run in self.runs) or not self.forms.isdisjoint(indexed_pieces(folded)):
            return True
        stems = [stem for stem in self.stems if stem in folded]
        begun = [beginning for beginning in self.beginnings if beginning in folded]
        return any(_is_compound_of(word, stems, begun) for word in indexed_pieces(folded))

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return the spans (start, end) of matched words and parts of runs, ordered and disjoint."""
        folded = fold_aligned(text)
        spans: list[tuple[int, int]] = []
        for start, end in sorted(self._matches(folded.text)):
            first, last = folded.starts[start], folded.ends[end - 1]
            if spans and first < spans[-1][1]:
                spans[-1] = spans[-1][0], max(spans[-1][1], last)
            else:
                spans.append((first, last))
        return spans

    def _matches(self, folded: str) -> Iterator[tuple[int, int]]:
        for word in split_words(folded):
            if not word.unspaced:
                cut = word.text[:MAX_WORD_LENGTH]
                if cut in self.forms or _is_compound_of(cut, self.stems, self.beginnings):
                    yield word.start, word.end
                continue
            for run in self.runs:
                start = word.text.find(run)
                while start >= 0:
                    yield word.start + start, word.start + start + len(run)
                    start = word.text.find(run, start + 1)


@lru_cache(maxsize=64)
def parse_words(words: str) -> WordQuery:
    """Read what a person typed; nothing of it is syntax. Function words count only alone."""
    typed: dict[str, tuple[str, bool, str]] = {}
    folded = fold_aligned(words)
    # Both have as many words: only letters replace letters.
    written = split_words(fold(write_digraphs(words)))
    for word, other in zip(split_words(folded.text), written, strict=True):
        text = word.text if word.unspaced else word.text[:MAX_WORD_LENGTH]
        spelt = words[folded.starts[word.start] : folded.ends[word.end - 1]]
        typed.setdefault(text, (spelt, word.unspaced, other.text[:MAX_WORD_LENGTH]))
    content = {
        text: alternatives for text, alternatives in typed.items() if not _FUNCTION_WORDS.fullmatch(text)
    }
    parsed: list[QueryWord] = []
    parts = 0
    for text, (spelt, is_run, digraphs) in (content or typed).items():
        if is_run:
            parsed.append(QueryWord(text, spelt, unspaced=True))
            continue
        spelled = spellings(text, digraphs)
        alternatives = list(stems(text))
        if len(spelled) == 1:
            alternatives = list(dict.fromkeys([*alternatives, *stems(spelled[0])]))
        alternatives = alternatives if parts < _MAX_PARTS else []
        parts += bool(alternatives)
        # Few of many spellings are words: these are looked up as they are.
        spelled += inflections(spelled[0]) if len(spelled) == 1 else []
        forms = tuple(form for form in dict.fromkeys([*inflections(text), *spelled]) if form != text)
        parsed.append(QueryWord(text, spelt, False, forms, tuple(alternatives), tuple(beginnings(text))))
    return WordQuery(
        tuple(parsed),
        tuple(word.text for word in parsed if word.unspaced),
        frozenset(form for word in parsed if not word.unspaced for form in (word.text, *word.inflections)),
        tuple(dict.fromkeys(stem for word in parsed for stem in word.stems)),
        tuple(dict.fromkeys(beginning for word in parsed for beginning in word.beginnings)),
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
    """Return the spans (start, end), in characters, of words that a query matches, ordered and disjoint."""
    return parse_words(words).spans(text)

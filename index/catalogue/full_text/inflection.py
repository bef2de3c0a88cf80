"""Other forms of words, of which one in a query finds the others.

Singular and plural of English and German, parts of German compounds, words of other alphabets by their
beginnings, and letters with digits behind them.
"""

import re
import unicodedata
from typing import Final

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
# Letters that stand before a part inside a word, and behind one at its beginning: "abnormal" is no "normal".
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


def inflections(word: str) -> list[str]:
    """Return the folded words that may be the plural or the singular of a folded word."""
    if not _takes_endings(word):
        return []
    found = [plural for singular, plural in _IRREGULAR if word == singular]
    for singular, plural, fewest in _ENDINGS:
        if plural == "s" and word.endswith("s"):
            continue
        if word.endswith(singular) and len(word) - len(singular) >= fewest:
            found.append(word.removesuffix(singular) + plural)
    return list(dict.fromkeys([*found, *_singulars(word)]))


def write_digraphs(text: str) -> str:
    """Return a text with the umlauts of German written with an e: "Ödem", "Oedem"."""
    return unicodedata.normalize("NFC", text).translate(_DIGRAPHS)


def spellings(word: str, written: str) -> list[str]:
    """Return the folded words that a folded word may be where umlauts are written in another way.

    Folding has taken the dots of umlauts away: "rontgen" stands for "roentgen", and "roentgen" for it. In
    words like "true" nothing tells that ue is no umlaut; what comes of them is no word, and finds nothing.

    Args:
        word: Word of a query.
        written: The same with its umlauts written as digraphs, folded; the word itself where it has none.
    """
    if not _takes_endings(word) or len(word) < _SPELLED_LENGTH:
        return []
    if written != word:
        return [written]
    if _DIGRAPH.search(word):
        return [_DIGRAPH.sub(lambda found: found.group()[0], word)]
    found = [word]
    for place in reversed([vowel.start() for vowel in _VOWEL.finditer(word)][:_MAX_VOWELS]):
        found += [f"{one[: place + 1]}e{one[place + 1 :]}" for one in found]
    return found[1:]


def stems(word: str) -> list[str]:
    """Return the folded parts of compounds that a folded word stands for; none of them holds another."""
    if not _takes_endings(word) or len(word) < _PART_LENGTH:
        return []
    parts = sorted({word, *(part for part in _singulars(word) if len(part) >= _STEM_LENGTH)}, key=len)
    return [part for place, part in enumerate(parts) if not any(other in part for other in parts[:place])]


def beginnings(word: str) -> list[str]:
    """Return the beginnings of other words that a folded word stands for.

    Those of letters end in them, digits follow: "ctr" stands for "ctr55". Those of other alphabets than
    Latin are without their ending, which in Russian and Greek depends on the case.
    """
    if not _is_of_letters(word) or len(word) < 2:
        return []
    if word.isascii() or len(word) < _OTHER_STEM:
        return [word]
    stem = _OTHER_ENDING.sub("", word)
    return [stem if len(stem) >= _OTHER_STEM else word]


def has_beginning(word: str, beginning: str) -> bool:
    """Tell whether a folded word begins so, and goes on with a digit or, in other alphabets, an ending."""
    if not word.startswith(beginning):
        return False
    rest = word[len(beginning) :]
    if rest[:1] in _DIGITS:
        return rest != ""
    return len(beginning) >= _OTHER_STEM and not beginning.isascii() and len(rest) <= _OTHER_REST


def is_compound(word: str) -> bool:
    """Tell whether a folded word may be one that another word is a part or a beginning of."""
    if len(word) > MAX_COMPOUND:
        return False
    if word.isalpha() and len(word) >= MIN_COMPOUND:
        return True
    other = not word.isascii() and len(word) >= _OTHER_STEM and _is_of_letters(word)
    return other or _NUMBERED.fullmatch(word) is not None


def has_part(compound: str, stem: str) -> bool:
    """Tell whether a folded compound begins with a stem, or has it behind another part."""
    if compound.startswith(stem) and len(compound) >= len(stem) + _REST_LENGTH:
        return True
    place = compound.find(stem, _REST_LENGTH)
    if place == _REST_LENGTH and compound[:_REST_LENGTH] in _NEGATIONS:
        place = compound.find(stem, place + 1)
    return place > 0


def _singulars(word: str) -> list[str]:
    found = [singular for singular, plural in _IRREGULAR if word == plural]
    for singular, plural, fewest in _ENDINGS:
        if plural == "s" and word.endswith("ss"):
            continue
        if word.endswith(plural) and len(word) - len(plural) >= fewest:
            found.append(word.removesuffix(plural) + singular)
    return found


def _takes_endings(word: str) -> bool:
    return word.isascii() and word.isalpha()


def _is_of_letters(word: str) -> bool:
    """Tell whether a word has letters alone, and the marks of its script."""
    return not any(sign.isdigit() for sign in word)

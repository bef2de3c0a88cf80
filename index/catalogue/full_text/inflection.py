"""Singular and plural of English and German words, and parts of German compounds."""

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


def stems(word: str) -> list[str]:
    """Return the folded parts of compounds that a folded word stands for; none of them holds another."""
    if not _takes_endings(word) or len(word) < _PART_LENGTH:
        return []
    parts = sorted({word, *(part for part in _singulars(word) if len(part) >= _STEM_LENGTH)}, key=len)
    return [part for place, part in enumerate(parts) if not any(other in part for other in parts[:place])]


def is_compound(word: str) -> bool:
    """Tell whether a folded word may be made of several."""
    return MIN_COMPOUND <= len(word) <= MAX_COMPOUND and word.isalpha()


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

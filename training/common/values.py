"""Values of tables: those that stand for "not known", numbers, and ages as DICOM writes them."""

import ast
import json
import re
import unicodedata
from datetime import date
from typing import Final, Literal

Decimal = Literal[".", ","]

# As pandas, Excel and databases write it; "none" and "na" may be somebody's words.
_SPELLINGS: Final = """
#N/A #NA #NV #N/D #NULL! #VALUE! #REF! #DIV/0! #NAME? -1.#IND -1.#QNAN -NaN 1.#IND 1.#QNAN NA NaT None
"""
_NOT_KNOWN: Final = frozenset(("", "#N/A N/A", *_SPELLINGS.split()))
# As people write it, in small letters and without spaces behind points.
_WORDS: Final = """
nan, -nan, null, (null), <null>, <na>, #n/a, \\n, undefined
n/a, n.a., n.a, n/d, n.d., n/k, missing, unknown, unspecified
not available, not known, not applicable, not specified
k.a., k.a, k/a, o.a., n.b., n.v., keine angabe, keine angaben, ohne angabe, unbekannt, fehlt, fehlend
nicht bekannt, nicht verfügbar, nicht angegeben
n/c, n.c., n.r., inconnu, inconnue, non connu, non connue
non renseigné, non renseignée, non disponible, manquant
s/d, sin datos, sin dato, desconocido, desconocida, no disponible, no consta
sconosciuto, sconosciuta, non noto, non nota, non disponibile, non specificato
n.v.t., onbekend, niet bekend, niet beschikbaar
desconhecido, desconhecida, não disponível, não informado, sem dados
"""
_NOT_KNOWN_WORDS: Final = frozenset(re.split(r",\s*|\n", _WORDS.strip()))
_LONGEST_WORDS: Final = 24
_SIGNS_ALONE: Final = re.compile("[-\u2013\u2014\u2212?._\u2026]+|[ :]+")
# Cameras without a clock and databases write no day as one of zeros.
_ZERO_DAY: Final = re.compile(r"0000([-:./])00\1(?:00)(?:[ T]00:00(?::00(?:\.0+)?)?(?:Z|[+-]\d\d:?\d\d)?)?")
_NUMBER: Final = {
    mark: re.compile(
        rf"[+-]?(?:(?:0|[1-9][0-9]*)(?:{re.escape(mark)}[0-9]*)?|{re.escape(mark)}[0-9]+)"
        r"(?:[eE][+-]?[0-9]{1,3})?"
    )
    for mark in (".", ",")
}
# Letters, numbers, and pictures such as emoji.
_SPEAKING: Final = frozenset(("Lu", "Ll", "Lt", "Lm", "Lo", "Nd", "Nl", "No", "So"))
_WHOLE: Final = re.compile(r"[+-]?[0-9]+")
_LEADING_ZERO: Final = re.compile(r"[+-]?0[0-9]+")
# Whole numbers of more digits are names: a double does not tell them all apart.
_MOST_DIGITS: Final = 15
_DATE: Final = re.compile(r"(?:1[89]|2[0-9])[0-9]{6}")
# Texts of a list as Python writes them, and what may be between them.
_QUOTED: Final = re.compile(r"'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\"")
_BETWEEN: Final = re.compile(r"[\s,]*")
_AGE: Final = re.compile(r"([0-9]{3})([DWMY])")
_YEARS: Final = {"D": 1 / 365.25, "W": 7 / 365.25, "M": 1 / 12}


def is_not_known(value: str) -> bool:
    """Whether a value of a table means "not known", such as "", "nan", "k. A." or "-"."""
    value = value.strip()
    if value in _NOT_KNOWN or (value.startswith("0000") and _ZERO_DAY.fullmatch(value)):
        return True
    if len(value) > _LONGEST_WORDS:
        return False
    return (
        _SIGNS_ALONE.fullmatch(value) is not None
        or " ".join(value.casefold().split()).replace(". ", ".") in _NOT_KNOWN_WORDS
    )


def is_without_words(text: str) -> bool:
    """Whether a text has no letters, digits or pictures: nothing, "___", "..." or a zero-width space."""
    if text.isascii():
        return not any(map(str.isalnum, text))
    return all(unicodedata.category(sign) not in _SPEAKING for sign in text)


def dicom_age_years(value: str) -> int | float | None:
    """Years, to a thousandth, of an age as DICOM writes it (three digits and D, W, M or Y); else None."""
    age = _AGE.fullmatch(value.strip())
    if age is None:
        return None
    return int(age[1]) if age[2] == "Y" else round(int(age[1]) * _YEARS[age[2]], 3)


def age_in_years(text: str) -> int | float | None:
    """Years of an age such as 58, 58.0 or, as in DICOM, 058Y or 006M; None for anything else."""
    age = dicom_age_years(text)
    age = parse_number(text.strip()) if age is None else age
    if age is None or age < 0:
        return None
    return int(age) if age == int(age) else age


def is_dicom_date(value: str) -> bool:
    """Whether a value is a day of the years 1800 to 2999 as DICOM writes it, such as 20210312."""
    try:
        return _DATE.fullmatch(value) is not None and bool(date.fromisoformat(value))
    except ValueError:
        return False


def parse_list(value: str) -> tuple[str, ...] | None:
    """The texts of a list that JSON, Python, NumPy or PostgreSQL wrote as one value; None for others."""
    value = value.strip()
    if value[:1] + value[-1:] not in ("[]", "()", "{}"):
        return None
    try:
        items = json.loads(value)
    except (ValueError, RecursionError):
        inside = value[1:-1].strip()
        quoted = list(_QUOTED.finditer(inside))
        between = _QUOTED.sub("", inside)
        # One text in parentheses is a text.
        if not quoted or not _BETWEEN.fullmatch(between) or (value[0] == "(" and "," not in between):
            return None
        try:
            items = [ast.literal_eval(item[0]) for item in quoted]
        except (ValueError, SyntaxError):
            return None
    is_list = isinstance(items, list) and all(isinstance(item, str) for item in items)
    return tuple(items) if is_list else None


def is_name_of_digits(value: str) -> bool:
    """Whether digits are a name: with a leading zero, such as 007, or too many to compute with."""
    if _LEADING_ZERO.fullmatch(value):
        return True
    return _WHOLE.fullmatch(value) is not None and len(value.lstrip("+-")) > _MOST_DIGITS


def parse_number(value: str, decimal: Decimal = ".") -> int | float | None:
    """The number that a value without outer spaces writes, with a decimal mark; None for names of digits."""
    if is_name_of_digits(value) or not _NUMBER[decimal].fullmatch(value):
        return None
    if _WHOLE.fullmatch(value):
        return int(value)
    number = float(value.replace(decimal, "."))
    return None if abs(number) == float("inf") else number

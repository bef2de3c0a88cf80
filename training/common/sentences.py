"""Where the sentences of a text begin, and scripts whose words have no spaces between them."""

import re
from typing import Final

# Words whose full stop ends no sentence, and those where it does not if a number follows: "Compare no. 5".
_ABBREVIATION = re.compile(r"al|approx|ca|cf|dept|dr|e\.g|figs?|i\.e|m[rst]|mrs|prof|st|vs", re.IGNORECASE)
_BEFORE_NUMBER = re.compile(r"im|nos?|pp?|se|vol", re.IGNORECASE)
_INITIALS = re.compile(r"(?:[^\W\d_]\.)+[^\W\d_]|[A-Z]")
_NO_BEGINNING = ".,;:!?)]\u3002\uff01\uff1f"
_OPENING = "([\"'\u2018\u201c"
_END = re.compile(
    r"(?<![.!?])(?P<mark>[.!?]+)[\"')\]\u2019\u201d]*\s+"  # a mark, closing quotes, white space
    r"|[\u3002\uff01\uff1f]+\s*"  # East Asian marks need no white space
    r"|\n[^\S\n]*\n\s*"  # a blank line
)
_LONGEST_WORD = 20
# Ranges of a class of a regular expression.
UNSPACED: Final = (
    # Thai, Lao, Burmese, Khmer, each without its digits.
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ebd\u0ec0-\u0ece\u0edc-\u0edf\u1000-\u103f\u1050-\u108f\u109a-\u109d"
    "\u1780-\u17d3\u17d7\u17dc\u17dd\ua9e0-\ua9ef\ua9fa-\ua9fe\uaa60-\uaa76\uaa7a-\uaa7f"
    # Hangul, Kana, Bopomofo.
    "\u1100-\u11ff\ua960-\ua97c\uac00-\ud7fb\u3031-\u3035\u3041-\u3096\u3099\u309a\u309d-\u309f\u30a1-\u30fa"
    "\u30fc-\u30ff\u3105-\u312f\u31a0-\u31bf\u31f0-\u31ff\U0001aff0-\U0001b16f"
    # Han.
    "\u3005-\u3007\u3021-\u3029\u303b\u3400-\u4dbf\u4e00-\u9fff\ufa0e-\ufa29\U00020000-\U0003fffd"
)


def sentence_starts(text: str) -> list[int]:
    """Positions where the sentences of a text begin; the first is 0.

    A sentence ends at a full stop, question or exclamation mark before white space, at their East Asian
    forms, and at a blank line. It goes on behind a known abbreviation ("Dr."), behind initials ("J.",
    "U.S."), behind the number of a list ("1. No effusion"), and where the next word is in lower case,
    unless the whole text is; no sentence begins with a mark. "2.5 cm" has no white space and stays whole.
    """
    starts = [0]
    lower_case = text == text.lower()
    written = text.rstrip()
    for end in _END.finditer(written):
        if end.end() == len(written):
            break
        if written[end.end()] in _NO_BEGINNING:
            continue
        begin = max(starts[-1], end.start() - _LONGEST_WORD)
        stops = set(end["mark"] or "") == {"."}
        if not (stops and _goes_on(text[begin : end.start()], text[end.end()], lower_case)):
            starts.append(end.end())
    return starts


def _goes_on(before: str, follows: str, lower_case: bool) -> bool:
    """Whether a sentence goes on behind the full stop that comes after these characters."""
    if follows.islower() and not lower_case:
        return True
    word = before.split()[-1].lstrip(_OPENING) if before.strip() else ""
    if word.isdigit():
        return before[: -len(word)].rstrip()[-1:] in ("", ":")
    shortened = _ABBREVIATION.fullmatch(word) or _INITIALS.fullmatch(word)
    return bool(shortened or (follows.isdigit() and _BEFORE_NUMBER.fullmatch(word)))

"""Where the sentences of a text begin."""

import re

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

"""Splits reports into sentences, in any script.

The rules of `sentence_starts` never change, since vectors of encoders that tell sentences apart depend on
them. The additional rules for reports are here.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final

from training.clinical.text.vocabulary import has_forms
from training.common.sentences import UNSPACED, sentence_starts
from training.common.values import is_without_words

# Texts are read as they are written, with Kana of half width as well.
_UNSPACED: Final = UNSPACED + "\uff66-\uff9f"
_WRAPPED: Final = re.compile(rf"(?<=[{_UNSPACED}])[^\S\n]*\n[^\S\n]*(?=[{_UNSPACED}])")
# Nouns that German counts by ordinal numbers: "3. Rippe".
_COUNTED: Final = (
    r"(?:rippen?|icr|interkostalraum\w*|[bhl]w[ks]|\w*wirbel\w*|segments?|tag\w*|wochen?|monat\w*|quartal\w*|jahr\w*"
    r"|lebensjahr\w*|grades?|fingers?|zehen?|strahls?|ventrikels?|januar|februar|märz|april|mai|juni|juli|august"
    r"|september|oktober|november|dezember)\b"
)
_ORDINAL_OF: Final = re.compile(_COUNTED, re.IGNORECASE)
# The number or the mark of an item: "1. Edema", "1.肺炎", "(2) ", "3、", "①", "- ", "・"; not "3. Rippe".
_LIST_MARKER: Final = re.compile(
    rf"(?:[(\uff08]?\d{{1,2}}(?:[.)](?=[\s{_UNSPACED}])(?!\s+{_COUNTED})|[\u3001\uff0e\uff09](?!\d))"
    r"|[-*](?=\s)|[\u2022\u30fb\u25cf\u25a0\u2460-\u2473])\s*",
    re.IGNORECASE,
)
# A blank line, or a new line with the next item of a list.
_NEW_BLOCK: Final = re.compile(rf"\n\s*\n|\n(?=[^\S\n]*{_LIST_MARKER.pattern})", re.IGNORECASE)

# Full stops of other scripts, but not in numbers: full width, half width, Devanagari, Urdu, Ethiopic, Khmer,
# Burmese.
_STOP: Final = re.compile(
    "(?:[\uff61\u0964\u0965\u06d4\u061f\u1362\u17d4\u104b]|(?<!\\d)\uff0e|\uff0e(?!\\d))+\\s*"
)
# A full stop between two letters, the first of them not alone: "effusion.IMPRESSION", but not "z.B.".
_GLUED: Final = re.compile(r"(?<=[^\W\d_]{2})\.(?=[^\W\d_]{2})")
_ABBREVIATION: Final = re.compile(
    r"abb|al|approx|aprox|bspw|bzw|ca|cf|dept|dr|entspr|env|evtl|exkl|figs?|ggf|incl|inkl|insb|insbes|klin|li|lt|max"
    r"|med|min|m[rst]|mrs|nr|pat|prof|re|resp|rö|sog|sra?|st|str|tab|tgl|vermutl|vgl|vs|wahrsch|zt|zw|zzt|[a-zA-Z]",
    re.IGNORECASE,
)
# Behind a number, the same letters are a unit: "5 min."
_AMOUNT: Final = re.compile(r"\d\s*[^\W\d_]+\.$")
_ARTICLE: Final = re.compile(r"(?:d(?:er|ie|as|es|em|en)|eine[rsmn]?)\s+\d{1,2}\.$", re.IGNORECASE)
_WORD_BEFORE: Final = re.compile(r"[^\W\d_]+(?=\.$)|\d{1,2}(?=\.$)")
_WORD: Final = re.compile(r"[^\W\d_]+")
# Names of files and of hosts also have full stops between letters.
_NAME_ENDING: Final = re.compile(
    r"(?:com|csv|dcm|de|edu|gov|html?|io|jpe?g|json|net|org|pdf|png|py|tiff?|txt|xml|zip)\b", re.IGNORECASE
)
_IN_NAME: Final = re.compile(r"[@/\\_]|www\.", re.IGNORECASE)
_CLOSING: Final = "」』）】〕》〉”’)]"
_LONGEST_WORD: Final = 40

_FEWEST_LETTERS: Final = 4
_HEADING_WORD: Final = re.compile(
    r"findings?|impressions?|conclusions?|indications?|history|techniques?|comparisons?|examinations?|reports?"
    r"|befund|beurteilung|fragestellung|indikation|technik|anamnese|voraufnahmen?",
    re.IGNORECASE,
)
# "V. a." and "Z. n." say something of any word behind them.
_SUSPECTED_OR_PAST: Final = re.compile(r"(?:v\. ?a|z\. ?n)\. ?[^\W\d_]", re.IGNORECASE)
_LATIN_WORD: Final = re.compile(r"[^\W\d_]{2,}")
_UNSPACED_WORD: Final = re.compile(f"[{_UNSPACED}]{{2}}")


def split_sentences(text: str, *, fragments: bool = False) -> tuple[str, ...]:
    """Split running text into sentences, without list numbers; `fragments` keeps fragments as well.

    A sentence ends at the full stop, question or exclamation mark of its script, also without a space behind
    it, at a blank line, and before the next item of a list; not behind an abbreviation or in a number. A
    fragment has no word, or one of fewer than four letters, an abbreviation or a heading: "OK." goes,
    "Effusion." and "PTX." stay. Where words have no spaces between them, two letters are enough.
    """
    pieces = (piece for block in _NEW_BLOCK.split(text) for piece in _pieces(block))
    sentences = (_LIST_MARKER.sub("", piece, 1) if _LIST_MARKER.match(piece) else piece for piece in pieces)
    return tuple(one for one in sentences if one and (fragments or _says_something(one)))


def sentence_spans(text: str) -> Iterator[tuple[int, int]]:
    """Give where the sentences of `split_sentences` begin and end in a text, fragments included.

    Sentences that have another number of blanks or line breaks between words in the text are among
    them; those whose letters were joined over a line break are left out.
    """
    end = 0
    for sentence in split_sentences(text, fragments=True):
        pattern = re.compile(r"\s+".join(map(re.escape, sentence.split())))
        if (match := pattern.search(text, end)) is not None:
            end = match.end()
            yield match.span()


def report_sentences(sections: Iterable[str]) -> tuple[str, ...]:
    """The sentences of several sections, each once, in order; fragments where there is nothing else."""
    pieces = [piece for section in sections for piece in split_sentences(section, fragments=True)]
    sentences = tuple(dict.fromkeys(filter(_says_something, pieces)))
    return sentences or tuple(dict.fromkeys(piece for piece in pieces if not is_without_words(piece)))


def _pieces(block: str) -> Iterator[str]:
    line = " ".join(_WRAPPED.sub("", block).split())
    starts = {start for start in sentence_starts(line) if not _goes_on(line, start)}
    starts.update(stop.end() for stop in _STOP.finditer(line))
    starts.update(stop.end() for stop in _GLUED.finditer(line) if _ends(line, stop.start()))
    kept = sorted(start for start in starts if not start or line[start : start + 1] not in _CLOSING)
    for start, end in pairwise([*kept, len(line)]):
        yield line[start:end].strip()


def _goes_on(line: str, start: int) -> bool:
    """Tell whether the full stop before a start is one of an abbreviation or an ordinal number."""
    before = line[max(0, start - _LONGEST_WORD) : start].rstrip()
    word = _WORD_BEFORE.search(before)
    if word is None:
        return False
    if not word.group().isdigit():
        return _ABBREVIATION.fullmatch(word.group()) is not None and _AMOUNT.search(before) is None
    following = _WORD.match(line, start)
    return _ARTICLE.search(before) is not None or (
        following is not None and _ORDINAL_OF.fullmatch(following.group()) is not None
    )


def _ends(line: str, stop: int) -> bool:
    before = line[max(0, stop - _LONGEST_WORD) : stop].rpartition(" ")[2]
    after = line[stop : stop + _LONGEST_WORD].partition(" ")[0]
    is_name = _IN_NAME.search(before + after) or _NAME_ENDING.match(line, stop + 1)
    return not (is_name or _goes_on(line, stop + 1))


def _says_something(sentence: str) -> bool:
    plain = "".join(sign for sign in sentence if unicodedata.category(sign)[0] != "M")
    words = _LATIN_WORD.findall(plain)
    if len(words) > 1 or _SUSPECTED_OR_PAST.match(plain) or _UNSPACED_WORD.search(sentence):
        return True
    if not words:
        return False
    (word,) = words
    is_shortened = _ABBREVIATION.fullmatch(word) and f"{word}." in plain
    is_heading = _HEADING_WORD.fullmatch(word) or plain.rstrip().endswith(":")
    return (len(word) >= _FEWEST_LETTERS and not is_shortened and not is_heading) or has_forms(plain)

"""The sentences of hits that have the words of a query, and the places of these."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from sqlalchemy import select

from index.catalogue import Catalogue
from index.catalogue.collections import Target
from index.catalogue.full_text import MAX_CHARACTERS, matched_spans, unknown_words
from index.catalogue.tables import ImageRow
from index.search.results import FoundImage, MatchedText
from training.clinical.reports.sentences import split_sentences

# A longer text is cut around its first match.
_MAX_LENGTH: Final = 400
_BEFORE: Final = 120
_CUT: Final = "\u2026"


class WordMatches(NamedTuple):
    """Words of a query in a page of hits.

    Attributes:
        texts: The text of each hit that has most of the words; None where it has none.
        unknown: The words, as typed, that no text of the collection has.
    """

    texts: Sequence[MatchedText | None]
    unknown: tuple[str, ...]


NO_WORDS: Final = WordMatches((), ())


def match_words(
    catalogue: Catalogue,
    collection_id: int,
    words: str,
    keys: Sequence[int],
    images: Sequence[FoundImage],
    target: Target,
) -> WordMatches:
    """Find words in the texts of hits, and those that the collection lacks; see `matched_texts`."""
    with catalogue.read() as session:
        unknown = unknown_words(session, collection_id, words)
    return WordMatches(matched_texts(catalogue, words, keys, images, target), unknown)


def matched_texts(
    catalogue: Catalogue, words: str, keys: Sequence[int], images: Sequence[FoundImage], target: Target
) -> list[MatchedText | None]:
    """Return for each hit the text or the sentence of its report that has most of the words.

    A found text is looked at alone; of an image its texts, and then its report.

    Args:
        catalogue: Holds the reports.
        words: Words as typed.
        keys: Keys of the hits.
        images: Images of the hits.
        target: Whether the hits are images or texts.
    """
    found = [_best(_texts(image), words) for image in images]
    missing = [key for key, match in zip(keys, found, strict=True) if match is None]
    if target == "texts" or not missing:
        return found
    with catalogue.read() as session:
        query = select(ImageRow.id, ImageRow.report).where(ImageRow.id.in_(missing))
        reports = {key: report for key, report in session.execute(query) if report is not None}
    return [
        _best(_sentences(reports[key]), words) if match is None and key in reports else match
        for key, match in zip(keys, found, strict=True)
    ]


def _texts(image: FoundImage) -> Sequence[str]:
    return image.texts if image.text is None else (image.text.text,)


def _sentences(report: str) -> Sequence[str]:
    return split_sentences(report[:MAX_CHARACTERS], fragments=True)


def _best(texts: Sequence[str] | Iterator[str], words: str) -> MatchedText | None:
    """Return the first of the texts with the most different matches."""
    best, most = None, 0
    for text in texts:
        spans = matched_spans(text, words)
        different = len({text[start:end].casefold() for start, end in spans})
        if different > most:
            best, most = _around(text, spans), different
    return best


def _around(text: str, spans: Sequence[tuple[int, int]]) -> MatchedText:
    if len(text) <= _MAX_LENGTH:
        return MatchedText(text, tuple(spans))
    first = max(0, min(spans[0][0] - _BEFORE, len(text) - _MAX_LENGTH))
    last = first + _MAX_LENGTH
    head, tail = _CUT if first else "", _CUT if last < len(text) else ""
    shift = len(head) - first
    kept = tuple((start + shift, end + shift) for start, end in spans if first <= start and end <= last)
    return MatchedText(f"{head}{text[first:last]}{tail}", kept)

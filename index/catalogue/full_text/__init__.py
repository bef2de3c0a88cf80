"""The words of texts and reports: a full-text index of SQLite (FTS5) or PostgreSQL, and ranks by it."""

from index.catalogue.full_text.fusion import fuse
from index.catalogue.full_text.query import MAX_WORDS, matched_spans, parse_words, tokens
from index.catalogue.full_text.ranking import matching, texts_with, unknown_words
from index.catalogue.full_text.storage import (
    IndexedWords,
    add_stored_words,
    add_words,
    merge_words,
    remove_words,
    replace_words,
)
from index.catalogue.full_text.tokenizer import MAX_CHARACTERS, pieces

__all__ = [
    "MAX_CHARACTERS",
    "MAX_WORDS",
    "IndexedWords",
    "add_stored_words",
    "add_words",
    "fuse",
    "matched_spans",
    "matching",
    "merge_words",
    "parse_words",
    "pieces",
    "remove_words",
    "replace_words",
    "texts_with",
    "tokens",
    "unknown_words",
]

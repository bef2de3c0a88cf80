"""A catalogue of the oldest schema, and what is to follow from its texts."""

from collections import Counter
from typing import Any

from sqlalchemy import select, text
from sqlalchemy.orm import Session

from index.catalogue.full_text import IndexedWords
from index.catalogue.tables import ImageRow, TextRow, VocabularyRow
from tests.index.catalogue.revisions import oldest_schema

COUNT = 650


def report_of(key: int) -> str:
    effusion = f"{('No', 'Possible', 'Large')[key % 3]} pleural effusion."
    return f"{effusion} Lungenaufnahme, 右肺{key}番"


def image_row(key: int, **other: Any) -> dict[str, Any]:
    image = {
        "id": key,
        "collection_id": 1 + key % 2,
        "external_id": str(key),
        "sha256": "sha",
        "media_type": "image/png",
        "width": 4,
        "height": 4,
        "split": "test",
        "report": report_of(key),
        "labels": "[]",
        "details": "{}",
        "record_digest": "digest",
    }
    return image | other


def make_old(url: str) -> None:
    """A catalogue of the oldest schema whose words and findings are of rules that nobody has."""
    columns = list(image_row(0))
    images = f"INSERT INTO images ({', '.join(columns)}) VALUES ({', '.join(':' + one for one in columns)})"
    with oldest_schema(url) as connection:
        connection.execute(
            text("INSERT INTO collections (id, name, sequence) VALUES (1, 'c', 2), (2, 'd', 2)")
        )
        connection.execute(text(images), [image_row(key) for key in range(1, COUNT + 1)])
        connection.execute(
            text("INSERT INTO texts (image_id, position, text) VALUES (:key, 0, 'Schwelle')"),
            [{"key": key} for key in range(1, COUNT + 1)],
        )
        connection.execute(
            text(
                "INSERT INTO findings (image_id, position, start, finding, stop, state, collection_id, "
                "image_finding) VALUES (:key, -1, 0, 'scurvy', 5, 'present', :collection, 'scurvy: present')"
            ),
            [{"key": key, "collection": 1 + key % 2} for key in range(1, COUNT + 1)],
        )
        if connection.dialect.name == "sqlite":
            words = "INSERT INTO image_words (rowid, words) VALUES (:key, 'oldword schwelle')"
        else:
            words = (
                "INSERT INTO image_words (image_id, words, runs) "
                "VALUES (:key, to_tsvector('simple', 'oldword schwelle'), '')"
            )
        connection.execute(text(words), [{"key": key} for key in range(1, COUNT + 1)])
        connection.execute(
            text("INSERT INTO vocabulary (collection_id, word, images) VALUES (1, 'oldword', 325)")
        )


def vocabulary(session: Session) -> dict[tuple[int, str], int]:
    query = select(VocabularyRow.collection_id, VocabularyRow.word, VocabularyRow.images)
    return {(row.collection_id, row.word): row.images for row in session.execute(query)}


def wanted_vocabulary(session: Session) -> dict[tuple[int, str], int]:
    """Long words of what is stored, counted again."""
    texts: dict[int, list[str]] = {}
    for key, message in session.execute(select(TextRow.image_id, TextRow.text).order_by(TextRow.position)):
        texts.setdefault(key, []).append(message)
    expected: Counter[tuple[int, str]] = Counter()
    for row in session.execute(select(ImageRow.id, ImageRow.collection_id, ImageRow.report)):
        words = IndexedWords.from_texts(texts.get(row.id, []), row.report)
        expected.update((row.collection_id, word) for word in words.compounds)
    return dict(expected)

"""A catalogue of the first schema with data in it is brought up to date on both databases."""

import numpy as np
import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine, select, text

from index.catalogue import open_catalogue
from index.catalogue.tables import EmbeddingRow, ImageRow, TextRow
from index.generations import find_active
from index.vectors.codec import encode_vectors

_VECTOR = encode_vectors(np.eye(1, 4, dtype=np.float32))[0]
_ROWS = (
    "INSERT INTO collections (id, name, sequence) VALUES (1, 'c', 2)",
    "INSERT INTO models (id, digest, name, dim, recipe, created, metrics) "
    "VALUES (1, 'abc', 'tiny', 4, '', '2026-01-01', '{}')",
    "INSERT INTO generations (id, collection_id, model_id, uid, state) VALUES (1, 1, 1, 'uid', 'active')",
    "INSERT INTO images (id, collection_id, external_id, sha256, media_type, width, height, split, report, "
    "labels, details, record_digest) "
    "VALUES (1, 1, 'one', 'sha', 'image/png', 4, 4, 'test', 'No effusion.', '[]', '{}', 'digest')",
    "INSERT INTO texts (image_id, position, text) VALUES (1, 1, 'Second sentence'), (1, 0, 'First')",
    "INSERT INTO embeddings (generation_id, image_id, sequence, vector) VALUES (1, 1, 2, :vector)",
)


def _make_first_schema(url: str) -> None:
    config = Config()
    config.set_main_option("script_location", "index.catalogue:migrations")
    engine = create_engine(url)
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
        for statement in _ROWS:
            values = {"vector": _VECTOR} if ":vector" in statement else {}
            connection.execute(text(statement), values)
    engine.dispose()


@pytest.fixture
def old_catalogue(catalogue_url: str, request: pytest.FixtureRequest) -> str:
    if catalogue_url.startswith("sqlite"):
        request.getfixturevalue("tmp_path").joinpath("home").mkdir()
    _make_first_schema(catalogue_url)
    return catalogue_url


def test_nothing_is_lost_and_words_are_taken_in(old_catalogue: str) -> None:
    catalogue = open_catalogue(old_catalogue)
    with catalogue.read() as session:
        found = find_active(session, "c")
        assert found is not None
        generation, sequence = found
        assert (generation.id, generation.blades, generation.unsigned, sequence) == (1, 1, False, 2)
        assert session.execute(select(EmbeddingRow.vector)).scalar_one() == _VECTOR
        assert session.execute(select(ImageRow.report)).scalar_one() == "No effusion."
        texts = session.execute(select(TextRow.position, TextRow.text).order_by(TextRow.id)).all()
        assert texts == [(0, "First"), (1, "Second sentence")]
        matching = (
            "SELECT rowid FROM image_words WHERE image_words MATCH 'effusion'"
            if old_catalogue.startswith("sqlite")
            else "SELECT image_id FROM image_words WHERE words @@ to_tsquery('simple', 'effusion')"
        )
        assert session.execute(text(matching)).scalars().all() == [1]
    catalogue.close()
    open_catalogue(old_catalogue).close()


def test_new_rows_go_in_beside_the_old_ones(old_catalogue: str) -> None:
    catalogue = open_catalogue(old_catalogue)
    with catalogue.write() as session:
        session.add(TextRow(image_id=1, position=2, text="Third"))
    with catalogue.read() as session:
        assert session.execute(select(TextRow.text).order_by(TextRow.id)).scalars().all()[-1] == "Third"
    catalogue.close()

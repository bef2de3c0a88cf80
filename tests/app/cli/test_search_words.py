"""`recoquest search` looks up the words of its texts beside likeness, where the collection has texts."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from app.application import create_app
from app.cli.main import build
from app.engine import open_engine
from index.ingest import ingest_manifest
from tests.app.conftest import COLLECTION, Indexed
from training.models.encoder import load_encoder

WORDLESS = "wordless"


@pytest.fixture
def without_texts(own: Indexed) -> Indexed:
    """The same images in another collection, without a text."""
    engine = open_engine(own.settings)
    try:
        encoder = load_encoder(own.bundle, "cpu")
        bare = tuple(replace(record, texts=(), report=None) for record in own.manifest.records)
        ingest_manifest(engine, WORDLESS, encoder, replace(own.manifest, records=bare), show_progress=False)
    finally:
        engine.close()
    return own


def _page(indexed: Indexed, *options: object, collection: str = COLLECTION) -> dict[str, Any]:
    arguments = ["search", collection, *map(str, options), "--json", "--home", str(indexed.settings.home)]
    done = CliRunner().invoke(build(), arguments)
    assert done.exit_code == 0, done.output
    page: dict[str, Any] = json.loads(done.stdout)
    return page


def _asked(indexed: Indexed, query: dict[str, Any]) -> dict[str, Any]:
    with TestClient(create_app(indexed.settings), "http://localhost") as client:
        answer = client.post(f"/v1/collections/{COLLECTION}/search", json=query)
    page: dict[str, Any] = answer.json()
    return page


def _hits(page: dict[str, Any]) -> list[tuple[str, list[str]]]:
    return [(hit["id"], hit["found_by"]) for hit in page["hits"]]


@pytest.mark.parametrize(
    ("options", "query"),
    [
        (["pneumothorax"], {"text": "pneumothorax", "keywords": "pneumothorax"}),
        (["pneumothorax", "--likeness-alone"], {"text": "pneumothorax"}),
        (["a dog", "--keywords", "pneumothorax"], {"text": "a dog", "keywords": "pneumothorax"}),
        (
            ["a dog", "--text", "pneumothorax"],
            {"text": "a dog", "like": [{"text": "pneumothorax"}], "keywords": "a dog pneumothorax"},
        ),
        (["?!"], {"text": "?!"}),
        ([" ".join(f"word{n}" for n in range(70))], {"text": " ".join(f"word{n}" for n in range(70))}),
    ],
)
def test_words_are_looked_up_beside_likeness(
    indexed: Indexed, options: list[str], query: dict[str, Any]
) -> None:
    assert _hits(_page(indexed, *options)) == _hits(_asked(indexed, query))


def test_a_collection_without_texts_is_searched_by_likeness(without_texts: Indexed) -> None:
    page = _page(without_texts, "pneumothorax", collection=WORDLESS)
    assert {hit["score_kind"] for hit in page["hits"]} == {"cosine"}
    assert "unknown_keywords" not in page or not page["unknown_keywords"]


def test_lines_are_searched_alike(indexed: Indexed, tmp_path: Path) -> None:
    file = tmp_path / "texts.txt"
    file.write_text("pneumothorax\n")
    for options in ((), ("--likeness-alone",)):
        arguments = ["search", COLLECTION, "--queries", str(file), *options]
        done = CliRunner().invoke(build(), [*arguments, "--home", str(indexed.settings.home)])
        assert _hits(json.loads(done.stdout)) == _hits(_page(indexed, "pneumothorax", *options))

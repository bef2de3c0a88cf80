"""Whether a page is confident depends on the words that the encoder knows, however it is asked."""

import json
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from app.application import create_app
from app.cli.main import build
from tests.app.conftest import COLLECTION, Indexed

EXPECTED = {"dogs in the snow": True, "a photograph of a giraffe": False, "two dogs at the lake": None}


@pytest.fixture
def all_is_near(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every vector lies among those of the collection's texts."""
    monkeypatch.setattr("index.scoring.background._domain_threshold", lambda *_: -1.0)


def _service(indexed: Indexed, target: str) -> dict[str, bool | None]:
    with TestClient(create_app(indexed.settings), "http://localhost") as client:
        path = f"/v1/collections/{COLLECTION}/search"
        return {
            text: client.post(path, json={"text": text, "target": target}).json()["confident"]
            for text in EXPECTED
        }


@pytest.mark.usefixtures("all_is_near")
@pytest.mark.parametrize("target", ["images", "texts"])
def test_the_service_doubts_what_the_encoder_cannot_read(indexed: Indexed, target: str) -> None:
    assert _service(indexed, target) == EXPECTED


@pytest.mark.usefixtures("all_is_near")
def test_a_pretrained_encoder_reads_all_words(indexed: Indexed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training.models.inputs.tokenizer.Tokenizer.learned", False)
    assert _service(indexed, "images") == dict.fromkeys(EXPECTED, True)


@pytest.mark.usefixtures("all_is_near")
def test_the_command_line_doubts_as_the_service_does(indexed: Indexed, tmp_path: Path) -> None:
    file = tmp_path / "texts.txt"
    file.write_text("\n".join(EXPECTED))
    home = ("--home", str(indexed.settings.home))
    done = CliRunner().invoke(build(), ["search", COLLECTION, "--queries", str(file), *home])
    pages = [json.loads(line) for line in done.stdout.splitlines()]
    assert {page["text"]: page["confident"] for page in pages} == EXPECTED
    for text, confident in EXPECTED.items():
        alone = CliRunner().invoke(build(), ["search", COLLECTION, text, *home])
        assert ("Likely nothing here" in alone.stderr) is (confident is False)

"""Whether a page is confident: by what was measured of the generation and by the words of the text."""

import json
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select

from app.application import create_app
from app.engine import open_engine
from index.catalogue.tables import GenerationRow
from index.scoring import Confidence, FlagCounts, keep_confidence
from tests.app.conftest import COLLECTION, Indexed, serve
from tests.training.imaging.processes.decoding import wait_until

COUNTS = FlagCounts(true=30, true_right=29, false=4, false_right=3, unanswerable=90, unanswerable_right=88)
# All scores count of texts whose words the collection has, and none of the others.
MEASURED = Confidence(count=24, held_out=60, kinds=12, known=-1.0, unknown=1.5, counts=COUNTS)
EXPECTED = {"dogs in the snow": True, "a photograph of a giraffe": False, "edema": True}


def _keep(indexed: Indexed, measured: Confidence) -> None:
    with indexed.engine() as engine, engine.home.catalogue.write() as session:
        keep_confidence(session, engine.active(COLLECTION).generation, measured)


def _search(client: TestClient, **query: object) -> bool | None:
    found: bool | None = client.post(f"/v1/collections/{COLLECTION}/search", json=query).json()["confident"]
    return found


def test_service_and_command_line_say_the_same(own: Indexed, tmp_path: Path) -> None:
    _keep(own, MEASURED)
    with serve(own, key=False) as client:
        assert {text: _search(client, text=text) for text in EXPECTED} == EXPECTED
        assert _search(client, text="dogs in the snow", target="texts") is None
        assert _search(client, like=[{"id": "image-1"}]) is None
        assert _search(client, text="dogs in the snow", like=[{"text": "a boat"}]) is None
    file = tmp_path / "texts.txt"
    file.write_text("\n".join(EXPECTED))
    done = own.run("search", COLLECTION, "--queries", file)
    pages = [json.loads(line) for line in done.stdout.splitlines()]
    assert {page["text"]: page["confident"] for page in pages} == EXPECTED
    for text, confident in EXPECTED.items():
        alone = own.run("search", COLLECTION, text)
        assert ("Likely nothing here" in alone.stderr) is (confident is False)


@pytest.mark.parametrize(
    ("measured", "said"),
    [
        (None, "not measured yet"),
        (
            Confidence(count=24, held_out=24, kinds=4),
            "unknown from 24 held-out images with texts, of 4 kinds",
        ),
        (MEASURED, "true for 30, of which 29 had more right hits"),
        (MEASURED, "false for 88 of 90"),
        (MEASURED.model_copy(update={"known": None, "unknown": None}), "best score: never; never with words"),
    ],
)
def test_the_command_line_explains_how_often_it_is_right(
    own: Indexed, measured: Confidence | None, said: str
) -> None:
    if measured is None:
        with own.engine() as engine, engine.home.catalogue.write() as session:
            session.get_one(GenerationRow, engine.active(COLLECTION).generation).confidence = None
    else:
        _keep(own, measured)
    assert said in " ".join(own.run("search", COLLECTION, "a boat", "--explain").stdout.split())


def test_a_service_measures_what_has_grown_and_no_search_waits(own: Indexed) -> None:
    _keep(own, MEASURED.model_copy(update={"count": 12}))
    settings = own.settings.model_copy(update={"refresh_s": 0.05})
    with TestClient(create_app(settings), "http://localhost") as client:
        assert _search(client, text="dogs in the snow") in (True, None)
        engine = open_engine(settings)

        def measured() -> int:
            with engine.home.catalogue.read() as session:
                kept = session.execute(select(GenerationRow.confidence)).scalar_one()
            count: int = kept["count"]
            return count

        wait_until(lambda: measured() == 24)
        engine.close()
        # Its 24 images are too few.
        assert _search(client, text="dogs in the snow") is None

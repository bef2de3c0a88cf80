"""The share of rejected hits of a month."""

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from sqlalchemy import update

from app.edge.metrics import Metrics
from app.refresh import verdicts_of_months
from index.catalogue.tables import FeedbackRow
from index.engine import SearchEngine
from index.feedback import JudgedQuery, record_judgement
from tests.app.conftest import COLLECTION, Indexed, serve
from tests.training.imaging.processes.decoding import wait_until

MARCH = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture
def judged(own: Indexed) -> Iterator[SearchEngine]:
    """Judgements of February and March, and one of January."""
    times = {
        "image-1": ("2026-02-01T00:00:00.000000+00:00", True, False),
        "image-2": ("2026-02-28T23:59:59.999999+00:00", False, False),
        "image-3": ("2026-03-01T00:00:00.000000+00:00", False, False),
        "image-4": ("2026-03-31T23:00:00.000000+00:00", True, True),
        "image-5": ("2026-01-31T23:59:59.999999+00:00", False, False),
    }
    with own.write() as session:
        for image, (time, relevant, missed) in times.items():
            record_judgement(
                session, COLLECTION, JudgedQuery((image,)), image, relevant, limit=9, missed=missed
            )
            latest = update(FeedbackRow).where(FeedbackRow.query["texts"][0].as_string() == image)
            session.execute(latest.values(created=time))
    with own.engine() as engine:
        yield engine


def test_months_are_those_of_the_calendar(judged: SearchEngine) -> None:
    assert verdicts_of_months(judged.home.catalogue, MARCH) == {
        "current": {(COLLECTION, "rejected"): 1, (COLLECTION, "supplemented"): 1},
        "last": {(COLLECTION, "accepted"): 1, (COLLECTION, "rejected"): 1},
    }


def test_supplements_are_no_part_of_the_share(judged: SearchEngine) -> None:
    metrics = Metrics()
    metrics.verdicts_counted(verdicts_of_months(judged.home.catalogue, MARCH))
    lines = metrics.render().decode().splitlines()
    share = 'recoquest_feedback_rejected_share{collection="photos",month='
    assert f'{share}"last"}} 0.5' in lines
    assert f'{share}"current"}} 1.0' in lines
    counted = 'recoquest_feedback_verdicts{collection="photos",month="current",verdict="supplemented"}'
    assert f"{counted} 1.0" in lines
    metrics.verdicts_counted({})
    assert share not in metrics.render().decode()


def test_a_service_shows_them_after_its_start(own: Indexed) -> None:
    with own.write() as session:
        query = JudgedQuery(("image-1",))
        record_judgement(session, COLLECTION, query, "image-1", True, limit=9, missed=False)
    accepted = 'recoquest_feedback_verdicts{collection="photos",month="current",verdict="accepted"} 1.0'
    with serve(own) as client:
        wait_until(lambda: accepted in client.get("/metrics").text)

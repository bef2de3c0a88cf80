"""Idempotency keys in the catalogue: one attempt at a time, one answer, forgotten after a day."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from index import idempotency
from index.catalogue import Catalogue
from index.errors import KeyInUseError
from index.idempotency import KeptAnswer, KeyedRequest
from tests.index.homes import in_write

SENT = KeyedRequest("caller", "key", "request")
ANSWER = KeptAnswer(202, {"location": "/v1/jobs/1"}, b'{"id": 1}')
START = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def begin(
    catalogue: Catalogue, attempt: str, after: timedelta = timedelta(), sent: KeyedRequest = SENT
) -> KeptAnswer | None:
    return in_write(catalogue, idempotency.begin_request, sent, attempt, START + after)


def keep(catalogue: Catalogue, attempt: str, answer: KeptAnswer = ANSWER) -> None:
    in_write(catalogue, idempotency.keep_answer, SENT, attempt, answer)


def test_the_answer_is_kept_for_a_day_and_then_forgotten(catalogue: Catalogue) -> None:
    assert (timedelta(hours=24), timedelta(seconds=30)) == (idempotency.KEPT, idempotency.LEASE)
    assert begin(catalogue, "a") is None
    keep(catalogue, "a")
    assert begin(catalogue, "b") == ANSWER
    # The first answer is kept.
    keep(catalogue, "a", KeptAnswer(500, {}, b""))
    assert begin(catalogue, "b", idempotency.KEPT) == ANSWER
    assert begin(catalogue, "b", idempotency.KEPT + SECOND) is None


def test_while_an_attempt_is_made_no_other_is(catalogue: Catalogue) -> None:
    begin(catalogue, "a")
    with pytest.raises(KeyInUseError):
        begin(catalogue, "b")
    in_write(catalogue, idempotency.renew_lease, SENT, "a", START + idempotency.LEASE / 2)
    with pytest.raises(KeyInUseError):
        begin(catalogue, "b", idempotency.LEASE)
    assert begin(catalogue, "b", idempotency.LEASE * 2) is None


def test_an_attempt_that_was_taken_over_neither_answers_nor_renews(catalogue: Catalogue) -> None:
    begin(catalogue, "a")
    begin(catalogue, "b", idempotency.LEASE)
    keep(catalogue, "a")
    with catalogue.write() as session:
        idempotency.renew_lease(session, SENT, "a", START + idempotency.LEASE * 10)
        idempotency.release_key(session, SENT, "a")
    with pytest.raises(KeyInUseError):
        begin(catalogue, "c", idempotency.LEASE)
    keep(catalogue, "b")
    assert begin(catalogue, "c", idempotency.LEASE) == ANSWER


def test_a_key_is_released_by_an_attempt_without_an_answer_only(catalogue: Catalogue) -> None:
    begin(catalogue, "a")
    in_write(catalogue, idempotency.release_key, SENT, "a")
    assert begin(catalogue, "b") is None
    keep(catalogue, "b")
    in_write(catalogue, idempotency.release_key, SENT, "b")
    assert begin(catalogue, "c") == ANSWER


def test_answers_are_forgotten_and_attempts_are_not(catalogue: Catalogue) -> None:
    other = KeyedRequest("caller", "other", "request")
    begin(catalogue, "a")
    begin(catalogue, "a", sent=other)
    keep(catalogue, "a")
    in_write(catalogue, idempotency.forget_answers)
    assert begin(catalogue, "b") is None
    with pytest.raises(KeyInUseError):
        begin(catalogue, "b", sent=other)


def test_of_attempts_at_the_same_time_one_is_made(catalogue: Catalogue) -> None:
    def attempt(number: int) -> bool:
        try:
            return begin(catalogue, str(number)) is None
        except KeyInUseError:
            return False

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(attempt, range(16))) == 1

"""Idempotency keys in the catalogue: a request that is sent again gets the answer of the first time."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlalchemy import delete, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from index.catalogue.tables import IdempotencyKeyRow
from index.errors import KeyInUseError, KeyReusedError

KEPT: Final = timedelta(hours=24)
# An attempt that no longer renews its lease was killed, or was abandoned at its deadline.
LEASE: Final = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class KeyedRequest:
    """A request with its idempotency key.

    Attributes:
        caller: SHA-256 of the caller's identity; keys of different callers are independent.
        key: The caller's name for it.
        request: SHA-256 of its method, address and body.
    """

    caller: str
    key: str
    request: str


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """The answer to a request, for those that send it again."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def begin_request(
    session: Session, sent: KeyedRequest, attempt: str, at: datetime | None = None
) -> KeptAnswer | None:
    """Take a key for an attempt to answer its request; keys of more than a day ago are forgotten.

    Returns:
        The answer that the request got before; None: the attempt has the key and answers.

    Raises:
        KeyReusedError: The caller has sent another request with this key.
        KeyInUseError: An attempt is being made to answer it.
    """
    at = at or datetime.now(UTC)
    session.execute(delete(IdempotencyKeyRow).where(IdempotencyKeyRow.created < _text(at - KEPT)))
    values = {"attempt": attempt, "leased_until": _text(at + LEASE)}
    new = IdempotencyKeyRow(
        caller=sent.caller, key=sent.key, request=sent.request, created=_text(at), **values
    )
    try:
        with session.begin_nested():
            session.add(new)
    except IntegrityError:
        row = session.get(IdempotencyKeyRow, (sent.caller, sent.key), with_for_update=True)
    else:
        return None
    if row is None:
        raise KeyInUseError
    if row.request != sent.request:
        raise KeyReusedError
    if row.status is not None:
        assert row.body is not None
        return KeptAnswer(row.status, row.headers or {}, row.body)
    if row.leased_until > _text(at):
        raise KeyInUseError
    session.execute(update(IdempotencyKeyRow).where(*_same(sent)).values(**values))
    return None


def renew_lease(session: Session, sent: KeyedRequest, attempt: str, at: datetime | None = None) -> None:
    """Say that an attempt is still being made."""
    until = _text((at or datetime.now(UTC)) + LEASE)
    session.execute(update(IdempotencyKeyRow).where(*_open_attempt(sent, attempt)).values(leased_until=until))


def keep_answer(session: Session, sent: KeyedRequest, attempt: str, answer: KeptAnswer) -> None:
    """Keep what an attempt answers, unless another one has taken over or an answer is kept already."""
    values: dict[str, Any] = {
        "status": answer.status,
        "headers": dict(answer.headers),
        "body": answer.body,
    }
    session.execute(update(IdempotencyKeyRow).where(*_open_attempt(sent, attempt)).values(**values))


def release_key(session: Session, sent: KeyedRequest, attempt: str) -> None:
    """Forget the key of an attempt that has done nothing; the request can be sent again."""
    session.execute(delete(IdempotencyKeyRow).where(*_open_attempt(sent, attempt)))


def forget_answers(session: Session) -> None:
    """Forget every answer that is kept, as some name images that are erased."""
    session.execute(delete(IdempotencyKeyRow).where(IdempotencyKeyRow.status.is_not(None)))


def _same(sent: KeyedRequest) -> tuple[Any, ...]:
    return IdempotencyKeyRow.caller == sent.caller, IdempotencyKeyRow.key == sent.key


def _open_attempt(sent: KeyedRequest, attempt: str) -> tuple[Any, ...]:
    return *_same(sent), IdempotencyKeyRow.attempt == attempt, IdempotencyKeyRow.status.is_(None)


def _text(time: datetime) -> str:
    """Return a time as `index.catalogue.collections.now` writes it: later times are greater texts."""
    return time.isoformat(timespec="microseconds")

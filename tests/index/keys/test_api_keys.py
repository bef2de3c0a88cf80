"""API keys: made once, checked by their digest, gone when revoked or expired; and a home's own secrets."""

import hashlib
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime, timedelta
from pathlib import Path
from threading import Barrier

import pytest
from sqlalchemy import text, update

from index.audit.chain import KEY_FILE, home_key
from index.catalogue import Catalogue
from index.catalogue.tables import ApiKeyRow
from index.errors import HomeError, KeyNameError, UnknownKeyError
from index.keys import api_keys
from index.keys.api_keys import Grants, NewKey
from index.keys.home_secret import FILE, patient_key
from tests.index.homes import in_read, in_write

READER: Grants = {"scenes": frozenset({"reader"})}


def _create(catalogue: Catalogue, name: str, days: int | None = 90) -> NewKey:
    return in_write(catalogue, api_keys.create_key, name, READER, days=days)


def _expire(catalogue: Catalogue, key: str) -> None:
    with catalogue.write() as session:
        past = {"created": "2001-01-01T00:00:00.000000+00:00", "expires": "2001-01-08T00:00:00.000000+00:00"}
        session.execute(update(ApiKeyRow).where(ApiKeyRow.id == key).values(**past))


def test_a_key_is_found_by_its_parts_and_its_secret_is_nowhere_in_the_catalogue(catalogue: Catalogue) -> None:
    made = _create(catalogue, "viewer")
    parts = api_keys.split_key(made.text)
    assert parts is not None
    key, secret = parts
    with catalogue.read() as session:
        result = api_keys.find_key(session, key)
        row = session.execute(text("SELECT * FROM api_keys")).one()
    assert result == made.key
    assert result is not None
    assert (result.state, result.name, result.grants) == ("live", "viewer", READER)
    assert result.digest == hashlib.sha256(secret.encode()).digest()
    assert secret not in repr(row)
    assert secret not in repr(made.key)


@pytest.mark.parametrize(
    "wrong", ["", "rq", "rq_1_2", "rq__", "Bearer", "xx_0123456789ab_" + "a" * 43, "a.b.c"]
)
def test_another_text_is_no_key(wrong: str) -> None:
    assert api_keys.split_key(wrong) is None


def test_no_two_keys_are_alike(catalogue: Catalogue) -> None:
    made = [_create(catalogue, f"viewer {number}") for number in range(20)]
    assert len({new.text for new in made} | {new.key.id for new in made}) == 40
    # 256 bits in base64 without its padding.
    assert {len(parts[1]) for new in made if (parts := api_keys.split_key(new.text))} == {43}


def test_a_name_has_two_keys_while_it_is_rotated_and_no_third(catalogue: Catalogue) -> None:
    first = _create(catalogue, "viewer", days=30)
    with pytest.raises(KeyNameError, match="rotate"):
        _create(catalogue, "viewer")
    second = in_write(catalogue, api_keys.rotate_key, "viewer")
    assert second.text != first.text
    assert second.key.grants == first.key.grants
    for key in (first.key, second.key):
        lived = datetime.fromisoformat(key.expires or "") - datetime.fromisoformat(key.created)
        assert abs(lived - timedelta(days=30)) < timedelta(seconds=20)
    with pytest.raises(KeyNameError, match=first.key.id), catalogue.write() as session:
        api_keys.rotate_key(session, "viewer")
    assert in_write(catalogue, api_keys.revoke_key, first.key.id).state == "revoked"
    third = in_write(catalogue, api_keys.rotate_key, "viewer")
    assert [(key.id, key.state) for key in in_read(catalogue, api_keys.list_keys)] == [
        (first.key.id, "revoked"),
        (second.key.id, "live"),
        (third.key.id, "live"),
    ]


def test_an_expired_key_is_replaced_for_as_many_days_and_a_revoked_one_is_not(catalogue: Catalogue) -> None:
    made = _create(catalogue, "viewer")
    _expire(catalogue, made.key.id)
    with catalogue.write() as session:
        expired = api_keys.find_key(session, made.key.id)
        new = api_keys.rotate_key(session, "viewer").key
    assert expired is not None
    assert (expired.state, new.state) == ("expired", "live")
    assert (new.expires or "")[:10] == str(date.fromisoformat(new.created[:10]) + timedelta(days=7))
    with catalogue.write() as session:
        for key in (made.key.id, new.id):
            api_keys.revoke_key(session, key)
    with pytest.raises(UnknownKeyError, match="viewer"), catalogue.write() as session:
        api_keys.rotate_key(session, "viewer")
    assert _create(catalogue, "viewer").key.state == "live"


def test_a_revoked_key_stays_revoked_since_the_same_time(catalogue: Catalogue) -> None:
    made = _create(catalogue, "viewer", days=None)
    assert made.key.expires is None
    once = in_write(catalogue, api_keys.revoke_key, made.key.id)
    assert in_write(catalogue, api_keys.revoke_key, made.key.id) == once
    with pytest.raises(UnknownKeyError, match="list"), catalogue.write() as session:
        api_keys.revoke_key(session, "0" * 12)


def test_the_day_of_use_is_kept(catalogue: Catalogue) -> None:
    made = _create(catalogue, "viewer")
    with catalogue.write() as session:
        api_keys.note_use(session, made.key.id, "2026-11-27")
        result = api_keys.find_key(session, made.key.id)
    assert result is not None
    assert (made.key.used, result.used) == (None, "2026-11-27")


def test_processes_that_start_together_make_one_first_key(catalogue: Catalogue) -> None:
    at_once = Barrier(4)

    def start() -> NewKey | None:
        at_once.wait()
        return in_write(catalogue, api_keys.create_first_key)

    with ThreadPoolExecutor(4) as threads:
        made = [results.result() for results in [threads.submit(start) for _ in range(4)]]
    first = [new for new in made if new is not None]
    assert len(first) == 1
    key = first[0].key
    assert (key.name, key.grants, key.expires) == ("first admin", {"*": frozenset({"admin"})}, None)
    in_write(catalogue, api_keys.revoke_key, first[0].key.id)
    # Revoking every key opens no door to a new one.
    assert in_write(catalogue, api_keys.create_first_key) is None


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "a" * 101])
def test_a_name_is_a_line_of_text(catalogue: Catalogue, name: str) -> None:
    with pytest.raises(KeyNameError, match="give 1 to 100 printable characters"):
        _create(catalogue, name)
    assert _create(catalogue, "a" * 100).key.state == "live"


def test_grants_are_read_as_they_are_written() -> None:
    written = {"*": ["auditor"], "scenes": ["reader", "curator"]}
    assert api_keys.written_grants(api_keys.parse_grants(written)) == written


@pytest.mark.parametrize(
    "wrong", [None, {}, [], "reader", {"a": []}, {"a": "reader"}, {"a": ["owner"]}, {"a": [1]}]
)
def test_other_grants_are_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match=r"role"):
        api_keys.parse_grants(wrong)


SECRETS = [
    (home_key, KEY_FILE, "audit.key, is damaged: .* other hashes"),
    (patient_key, FILE, "patients.key, is damaged: .* other pseudonyms"),
]


@pytest.mark.parametrize(("draw", "name", "lost"), SECRETS)
def test_all_who_draw_at_once_get_the_same_and_a_damaged_one_is_not_replaced(
    tmp_path: Path, draw: Callable[[Path], bytes], name: str, lost: str
) -> None:
    with ThreadPoolExecutor(8) as pool:
        keys = set(pool.map(draw, [tmp_path] * 16))
    assert len(keys) == 1
    assert len(keys.pop()) == 32
    assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [name]
    for damaged in ("abc", "ab"):
        (tmp_path / name).write_text(damaged)
        with pytest.raises(HomeError, match=lost):
            draw(tmp_path)
        assert (tmp_path / name).read_text() == damaged

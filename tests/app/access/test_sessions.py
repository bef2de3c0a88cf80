"""Sessions of browsers: their cookie, what it may, and when it ends."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from fastapi.testclient import TestClient
from joserfc import jwt
from pydantic import SecretStr

from app.access.sessions import COOKIE, LIFETIME_S, SessionSigner
from app.application import create_app
from app.edge.principal import Principal
from app.edge.problems import RequestError
from index.keys.api_keys import Grants, revoke_key
from tests.access import ADMIN_KEY, bearer
from tests.app.conftest import COLLECTION, Indexed
from tests.oidc import AUDIENCE, OidcProvider

SESSION = "/v1/session"
HERE = f"/v1/collections/{COLLECTION}"
JUDGEMENT = {"query": {"text": "a boat"}, "hit": "image-1", "relevant": True}


@pytest.fixture(scope="module")
def closed(make_indexed: Callable[..., Indexed], oidc: OidcProvider) -> Indexed:
    home = make_indexed()
    changed = {
        "open_reading": False,
        "open_feedback": False,
        "oidc_issuer": oidc.issuer,
        "oidc_audience": AUDIENCE,
        "oidc_roles": {"readers": {COLLECTION: ["reader"]}},
    }
    return replace(home, settings=type(home.settings).model_validate(home.settings.model_dump() | changed))


@pytest.fixture(scope="module")
def application(closed: Indexed) -> Iterator[Any]:
    application = create_app(closed.settings)
    with TestClient(application, "http://localhost"):
        yield application


@pytest.fixture
def browser(application: Any) -> TestClient:
    """A browser without any cookie; the application runs already."""
    return TestClient(application, "http://localhost")


def _sign_in(browser: TestClient, credential: str) -> dict[str, Any]:
    answer = browser.post(SESSION, headers=bearer(credential))
    assert answer.status_code == 200, answer.text
    state: dict[str, Any] = answer.json()
    return state


def test_a_judge_signs_in_searches_judges_and_signs_out(browser: TestClient, closed: Indexed) -> None:
    nobody = browser.get(SESSION).json()
    assert nobody == {
        "kind": "anonymous", "name": None, "roles": {}, "open_reading": False, "expires": None,
        "csrf_token": None, "provider_sign_in": False, "provider_sign_out": None,
    }  # fmt: skip
    assert browser.get(HERE).status_code == 401
    state = _sign_in(browser, closed.key("judge", COLLECTION, name="Dr Weiss"))
    assert (state["kind"], state["name"], state["roles"]) == ("session", "Dr Weiss", {COLLECTION: ["judge"]})
    assert browser.get(SESSION).json() == state
    assert browser.get(f"{HERE}/images/image-1/thumbnail").status_code == 200
    csrf = {"X-CSRF-Token": state["csrf_token"]}
    for guessed in ("", "guessed", "é"):
        headers = {b"X-CSRF-Token": guessed.encode()}
        for path, body in ((f"{HERE}/search", {"text": "a boat"}), (f"{HERE}/feedback", JUDGEMENT)):
            refused = browser.post(path, json=body, headers=headers)
            assert (refused.status_code, refused.json()["type"]) == (403, "urn:recoquest:csrf-token-needed")
    assert browser.delete(SESSION).status_code == 403
    assert browser.post(f"{HERE}/search", json={"text": "a boat"}, headers=csrf).status_code == 200
    assert browser.post(f"{HERE}/feedback", json=JUDGEMENT, headers=csrf).status_code < 300
    # More than its role a session may not.
    assert browser.delete(f"{HERE}/images/image-1", headers=csrf).status_code == 403
    assert browser.delete(SESSION, headers=csrf).status_code == 204
    assert COOKIE not in browser.cookies
    assert browser.get(HERE).status_code == 401


@pytest.mark.parametrize(
    ("address", "headers", "secure"),
    [
        ("http://localhost", {}, False),
        ("https://localhost", {}, True),
        ("http://localhost", {"X-Forwarded-Proto": "https"}, True),
    ],
)
def test_no_script_and_no_other_site_gets_the_cookie(
    application: Any, address: str, headers: dict[str, str], secure: bool
) -> None:
    browser = TestClient(application, address)
    answer = browser.post(SESSION, headers={**bearer(ADMIN_KEY), **headers})
    first, *parts = answer.headers["set-cookie"].split("; ")
    assert first.startswith(f"{COOKIE}=")
    wanted = {"HttpOnly", "SameSite=strict", "Path=/", f"Max-Age={LIFETIME_S}"}
    assert set(parts) == wanted | ({"Secure"} if secure else set())
    assert answer.headers["cache-control"] == "no-store"


def test_a_session_ends_with_its_key(browser: TestClient, closed: Indexed) -> None:
    key = closed.key("reader", COLLECTION, name="short")
    _sign_in(browser, key)
    assert browser.get(HERE).status_code == 200
    with closed.write() as session:
        revoke_key(session, key.split("_")[1])
    time.sleep(1.1)
    assert browser.get(HERE).status_code == 401
    assert browser.get(SESSION).json()["kind"] == "anonymous"


def test_a_session_of_the_administrators_key_ends_when_that_is_another(
    browser: TestClient, closed: Indexed
) -> None:
    _sign_in(browser, ADMIN_KEY)
    assert browser.get("/v1/jobs").status_code == 200
    for key, status in ((SecretStr("another key with every right"), 401), (None, 401), (ADMIN_KEY, 200)):
        settings = closed.settings.model_copy(
            update={"admin_key": SecretStr(key) if isinstance(key, str) else key}
        )
        with TestClient(create_app(settings), "http://localhost", cookies=dict(browser.cookies)) as again:
            assert again.get("/v1/jobs").status_code == status


@pytest.mark.slow
def test_a_session_of_a_token_ends_when_that_expires(browser: TestClient, oidc: OidcProvider) -> None:
    now = int(time.time())
    claims = {
        "iss": oidc.issuer, "aud": AUDIENCE, "sub": "somebody", "name": "Ada", "iat": now, "exp": now + 3,
        "groups": ["readers"],
    }  # fmt: skip
    token = jwt.encode({"alg": "RS256", "kid": "first", "typ": "JWT"}, claims, oidc.key)
    state = _sign_in(browser, token)
    assert (state["name"], state["roles"]) == ("Ada", {COLLECTION: ["reader"]})
    # The token itself is taken for another minute.
    assert browser.get(HERE).status_code == 200
    sealed = browser.cookies[COOKIE]
    time.sleep(max(0.0, now + 3.1 - time.time()))
    answer = browser.get(HERE, headers={"Cookie": f"{COOKIE}={sealed}"})
    assert answer.status_code == 401


def test_a_key_that_is_sent_counts_and_the_cookie_does_not(browser: TestClient, closed: Indexed) -> None:
    _sign_in(browser, ADMIN_KEY)
    reader = bearer(closed.key("reader", COLLECTION, name="reads"))
    assert browser.get("/v1/jobs", headers=reader).status_code == 403
    assert browser.post(f"{HERE}/search", json={"text": "a boat"}, headers=reader).status_code == 200
    assert browser.get(SESSION, headers=reader).json()["name"] == "reads"


def test_the_audit_trail_names_the_person(browser: TestClient, closed: Indexed) -> None:
    key = closed.key("reader", COLLECTION, name="Dr Noted")
    state = _sign_in(browser, key)
    browser.get(f"{HERE}/images/image-2")
    browser.delete(SESSION, headers={"X-CSRF-Token": state["csrf_token"]})
    # Nobody is signed in any more.
    assert browser.delete(SESSION, headers=bearer(key)).status_code == 204
    time.sleep(1)
    events = browser.get("/v1/audit", params={"limit": 1000}, headers=bearer(ADMIN_KEY)).json()["events"]
    found = [event for event in events if event["actor"]["name"] == "Dr Noted"]
    assert [event["action"] for event in found] == ["sign-in", "view", "sign-out"]
    assert {event["actor"]["id"] for event in found} == {key.split("_")[1]}
    assert {event["actor"]["kind"] for event in found} == {"session"}


PRINCIPAL = Principal("token", "https://id#somebody", "Ada", {"scenes": frozenset({"reader", "judge"})}, 1e12)


def test_a_cookie_is_read_as_it_was_sealed_until_it_ends() -> None:
    now = [1_000_000.0]
    signer = SessionSigner(b"s" * 32, lambda: now[0])
    session = signer.begin(PRINCIPAL, None)
    sealed = signer.seal(session)
    assert signer.open(sealed) == session
    assert session.grants == PRINCIPAL.grants
    now[0] += LIFETIME_S - 1
    assert signer.open(sealed) == session
    now[0] += 1
    assert signer.open(sealed) is None


def test_what_is_not_signed_here_is_no_session() -> None:
    signer = SessionSigner(b"s" * 32)
    session = signer.begin(PRINCIPAL, None)
    sealed = signer.seal(session)
    payload, signature = sealed.split(".")
    raised = replace(session, grants={"*": frozenset({"admin"})})
    other = SessionSigner(b"t" * 32).seal(raised)
    forged = [
        "", ".", payload, f"{payload}.", f".{signature}", f"{payload}.{signer.csrf_token(session)}", other,
        f"{other.split('.')[0]}.{signature}", f"{sealed}x", "ü.ü", "a" * 5000,
    ]  # fmt: skip
    assert [signer.open(one) for one in forged] == [None] * len(forged)
    # None of its characters can be another.
    for place in range(0, len(sealed) - 1, 7):
        changed = f"{sealed[:place]}{'A' if sealed[place] != 'A' else 'B'}{sealed[place + 1 :]}"
        assert signer.open(changed) is None, place


def test_sessions_have_csrf_tokens_of_their_own() -> None:
    signer = SessionSigner(b"s" * 32)
    first, second = signer.begin(PRINCIPAL, None), signer.begin(PRINCIPAL, None)
    assert signer.csrf_token(first) == signer.csrf_token(first)
    assert signer.csrf_token(first) != signer.csrf_token(second)
    assert signer.csrf_token(first) not in signer.seal(first)


def test_more_roles_than_a_cookie_holds_are_told() -> None:
    many: Grants = {f"collection-{place}": frozenset({"reader"}) for place in range(200)}
    signer = SessionSigner(b"s" * 32)
    with pytest.raises(RequestError, match="200 collections"):
        signer.seal(signer.begin(replace(PRINCIPAL, grants=many), None))
    # A key's are looked up.
    assert len(json.dumps(signer.seal(signer.begin(replace(PRINCIPAL, grants=many), b"digest")))) < 1000

"""The code flow at a provider over HTTP: addresses, tokens that fit, and answers that do not."""

import asyncio
import base64
import json
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from joserfc.jwk import RSAKey
from starlette.requests import Request

from app.access.oidc import CodeFlow, CodeRefusedError, Provider, ProviderError, SignInAttempt
from app.edge.principal import Principal
from app.edge.problems import RequestError
from app.settings import Settings
from tests.app.access.sign_in.conftest import ATTEMPT, CLIENT, SECRET, Site

CALLBACK = "https://images.example.org/v1/session/callback"


def _redeem(flow: CodeFlow, attempt: SignInAttempt = ATTEMPT) -> Principal:
    return asyncio.run(flow.redeem("a code", attempt, CALLBACK))


def _request(host: str = "localhost:8000", root: str = "", **headers: str) -> Request:
    sent = {"host": host, **{name.replace("_", "-"): value for name, value in headers.items()}}
    encoded = [(name.encode(), value.encode()) for name, value in sent.items()]
    scope = {"type": "http", "method": "GET", "scheme": "http", "path": "/", "root_path": root}
    return Request({**scope, "query_string": b"", "server": ("127.0.0.1", 8000), "headers": encoded})


def test_the_provider_is_asked_with_state_nonce_and_the_hash_of_the_verifier(site: Site) -> None:
    url = asyncio.run(site.flow().authorization_url(ATTEMPT, CALLBACK))
    assert url.startswith(f"{site.address}/auth?policy=staff&")
    challenge = base64.urlsafe_b64encode(sha256(ATTEMPT.verifier.encode()).digest()).decode().rstrip("=")
    assert {name: value for name, (value,) in parse_qs(urlsplit(url).query).items()} == {
        "policy": "staff", "response_type": "code", "client_id": CLIENT, "redirect_uri": CALLBACK,
        "scope": "openid profile", "state": ATTEMPT.state, "nonce": ATTEMPT.nonce,
        "code_challenge": challenge, "code_challenge_method": "S256",
    }  # fmt: skip
    assert ATTEMPT.verifier not in url


@pytest.mark.parametrize(
    ("known", "asked"),
    [
        (["openid", "profile", "email", "offline_access"], "openid profile email"),
        (["groups", "openid"], "openid groups"),
        (["profile"], "openid profile"),
        ([1], "openid profile"),
    ],
)
def test_scopes_are_those_that_the_provider_knows(site: Site, known: list[Any], asked: str) -> None:
    site.discovery["scopes_supported"] = known
    url = asyncio.run(site.flow().authorization_url(ATTEMPT, CALLBACK))
    assert parse_qs(urlsplit(url).query)["scope"] == [asked]


def test_a_public_client_shows_the_verifier_and_no_secret(site: Site) -> None:
    site.give()
    person = _redeem(site.flow())
    assert (person.id, person.name) == (f"{site.address}#somebody", "Ada")
    assert person.grants == {"scenes": {"reader"}}
    ((form, authorization),) = site.sent
    assert authorization is None
    assert form == {
        "grant_type": ["authorization_code"], "code": ["a code"], "redirect_uri": [CALLBACK],
        "code_verifier": [ATTEMPT.verifier], "client_id": [CLIENT],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("known", "basic"),
    [
        (None, True),
        (["client_secret_basic", "client_secret_post"], True),
        (["client_secret_post", "private_key_jwt"], False),
    ],
)
def test_a_client_with_a_secret_sends_it_as_the_provider_takes_it(
    site: Site, known: list[str] | None, basic: bool
) -> None:
    if known is not None:
        site.discovery["token_endpoint_auth_methods_supported"] = known
    site.give()
    _redeem(site.flow(oidc_client_secret=SECRET))
    ((form, authorization),) = site.sent
    if basic:
        # RFC 6749, section 2.3.1.
        wanted = base64.b64encode(b"page+%26+more:hidden%3A+100+%25").decode()
        assert authorization == f"Basic {wanted}"
        assert "client_secret" not in form
    else:
        assert authorization is None
        assert form["client_secret"] == [SECRET]


@pytest.mark.parametrize(
    "changed",
    [
        {"nonce": "another"},
        {"nonce": None},
        {"aud": "another client"},
        {"aud": None},
        {"azp": "another client"},
        {"iss": "https://login.example.org"},
        {"exp": 1_000_000},
        {"exp": None},
        {"sub": None},
        {"header": {"kid": "second"}},
        {"header": {"typ": "at+jwt"}},
        {"key": RSAKey.generate_key(2048, {"kid": "first"})},
    ],
    ids=lambda changed: "another key" if "key" in changed else str(changed),
)
def test_an_id_token_that_is_not_for_this_sign_in_is_refused(site: Site, changed: dict[str, Any]) -> None:
    flow = site.flow()
    site.give(aud=[CLIENT, "another"], azp=CLIENT)
    assert _redeem(flow).name == "Ada"
    site.give(**changed)
    with pytest.raises(RequestError) as refused:
        _redeem(flow)
    assert refused.value.kind.status == 401
    assert ATTEMPT.nonce not in str(refused.value)


def test_an_unsigned_id_token_is_refused(site: Site) -> None:
    site.give()
    token = json.loads(site.answer)["id_token"]
    header = base64.urlsafe_b64encode(b'{"alg":"none"}').decode().rstrip("=")
    site.answer = json.dumps({"id_token": f"{header}.{token.split('.')[1]}."}).encode()
    with pytest.raises(RequestError):
        _redeem(site.flow())


@pytest.mark.parametrize(
    ("status", "answer", "error"),
    [
        (400, b'{"error": "invalid_grant"}', CodeRefusedError),
        (401, b'{"error": "invalid_client"}', CodeRefusedError),
        (400, b'{"error": "<script>"}', CodeRefusedError),
        (400, b"no JSON", CodeRefusedError),
        (400, b'{"error": "temporarily_unavailable"}', ProviderError),
        (302, b"", CodeRefusedError),
        (500, b"{}", ProviderError),
        (200, b"no JSON", ProviderError),
        (200, b'"' + b"x" * (1 << 20) + b'"', ProviderError),
        (200, b"{}", CodeRefusedError),
        (200, b"[]", CodeRefusedError),
        (200, b'{"id_token": 1}', CodeRefusedError),
        (200, '{"id_token": "é.é.é"}'.encode(), CodeRefusedError),
    ],
)
def test_another_answer_to_a_code_is_an_error_in_a_sentence(
    site: Site, status: int, answer: bytes, error: type[Exception]
) -> None:
    site.status, site.answer = status, answer
    with pytest.raises(error) as refused:
        _redeem(site.flow())
    assert "script" not in str(refused.value)
    assert str(refused.value).endswith(".") or "openid" in str(refused.value)


def test_a_provider_without_safe_addresses_signs_nobody_in(site: Site) -> None:
    site.discovery |= {
        "authorization_endpoint": "http://login.example.org/auth",
        "token_endpoint": "javascript:alert(1)",
        "end_session_endpoint": "https://login.example.org/#out",
    }
    flow = site.flow()
    with pytest.raises(ProviderError):
        asyncio.run(flow.authorization_url(ATTEMPT, CALLBACK))
    with pytest.raises(ProviderError):
        _redeem(flow)
    assert asyncio.run(flow.sign_out_url()) is None
    assert site.sent == []


def test_the_sign_out_of_the_provider_is_told_where_it_has_one(site: Site) -> None:
    assert asyncio.run(site.flow().sign_out_url()) == f"{site.address}/out?client_id=page+%26+more"
    del site.discovery["end_session_endpoint"]
    assert asyncio.run(site.flow().sign_out_url()) is None
    nobody = Settings(oidc_issuer="http://127.0.0.1:1", oidc_client_id=CLIENT)
    flow = CodeFlow(nobody, Provider("http://127.0.0.1:1"), CLIENT)
    assert asyncio.run(flow.sign_out_url()) is None


@pytest.mark.parametrize(
    ("public", "request_", "wanted"),
    [
        (None, _request(), "http://localhost:8000/v1/session/callback"),
        (None, _request("images.example.org", x_forwarded_proto="https"), CALLBACK),
        (None, _request("images.example.org", "/a", x_forwarded_proto="https, http"),
         "https://images.example.org/a/v1/session/callback"),
        ("https://images.example.org", _request("backend:8000"), CALLBACK),
        ("https://images.example.org/a/", _request("backend:8000"),
         "https://images.example.org/a/v1/session/callback"),
    ],
)  # fmt: skip
def test_browsers_come_back_to_the_address_that_they_see(
    site: Site, public: str | None, request_: Request, wanted: str
) -> None:
    assert site.flow(public_url=public).redirect_uri(request_) == wanted

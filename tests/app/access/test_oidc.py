"""OpenID Connect: the keys of a provider, sign-ins that have begun, and the code flow."""

import asyncio
import base64
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urljoin, urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey
from starlette.requests import Request
from starlette.responses import Response

from app.access.oidc import (
    COOKIE,
    LIFETIME_S,
    CodeFlow,
    CodeRefusedError,
    Provider,
    ProviderError,
    SignInAttempt,
    UnknownSigningKeyError,
    begin_attempt,
    fetch_json,
    find_attempt,
    is_own_path,
    keep_attempt,
)
from app.access.sessions import SessionSigner
from app.edge.principal import Principal
from app.edge.problems import RequestError
from app.settings import Settings
from tests.answering import answering
from tests.app.access.conftest import ATTEMPT, CLIENT, SECRET, Site
from tests.app.access.test_authentication import Clock

pytestmark = pytest.mark.anyio
ISSUER = "https://login.example.org"
KEYS = "https://login.example.org/keys"


class FakeFetch:
    """What a provider answers, and what it was asked."""

    def __init__(self, *keys: dict[str, Any]) -> None:
        self.documents: dict[str, Any] = {
            f"{ISSUER}/.well-known/openid-configuration": {"issuer": ISSUER, "jwks_uri": KEYS},
            KEYS: {"keys": list(keys)},
        }
        self.requests: list[str] = []
        self.down = False

    async def __call__(self, url: str) -> Any:
        self.requests.append(url)
        if self.down:
            raise ProviderError("It is down.")
        return self.documents[url]


def _public(key: RSAKey | ECKey | OKPKey, kid: str, **more: str) -> dict[str, Any]:
    return {**key.as_dict(private=False), "kid": kid, **more}


RSA = _public(RSAKey.generate_key(2048), "rsa")
EC = _public(ECKey.generate_key("P-256"), "ec")
ED = _public(OKPKey.generate_key("Ed25519"), "ed")


def _found(provider: Provider, algorithm: str, kid: str | None) -> str | None:
    return asyncio.run(provider.signing_key(algorithm, kid)).kid


def test_keys_are_found_by_identifier_and_algorithm_and_fetched_once() -> None:
    # A hundred are read.
    site = FakeFetch(*[{"kty": "AKP"}] * 97, RSA, EC, ED, {**EC, "kid": "late"})
    provider = Provider(ISSUER, site, Clock())
    for algorithm, kid in (("RS256", "rsa"), ("PS256", "rsa"), ("ES256", "ec"), ("EdDSA", "ed")):
        assert _found(provider, algorithm, kid) == kid
    assert len(site.requests) == 2
    for algorithm, kid in (("ES256", "rsa"), ("RS256", "ec"), ("RS256", "another"), ("ES256", "late")):
        with pytest.raises(UnknownSigningKeyError):
            _found(provider, algorithm, kid)
    # The provider is not asked again so soon, whichever keys tokens name.
    assert len(site.requests) == 2


def test_a_key_without_a_name_is_taken_if_it_is_the_only_one() -> None:
    assert _found(Provider(ISSUER, FakeFetch(RSA, EC), Clock()), "RS256", None) == "rsa"
    with pytest.raises(UnknownSigningKeyError):
        _found(Provider(ISSUER, FakeFetch(RSA, {**RSA, "kid": "2"}), Clock()), "RS256", None)


@pytest.mark.parametrize(
    "unfit",
    [
        {**RSA, "use": "enc"},
        {**RSA, "alg": "PS512"},
        {**OctKey.generate_key(256).as_dict(private=True), "kid": "rsa"},
        _public(RSAKey.generate_key(1024), "rsa"),
        {"kty": "RSA", "kid": "rsa", "n": "!", "e": "AQAB"},
        {"kty": "RSA", "kid": ["rsa"]},
        {"kty": "AKP", "kid": "rsa"},
        "no key",
    ],
)
def test_unfit_keys_are_passed_over(unfit: Any) -> None:
    provider = Provider(ISSUER, FakeFetch(unfit, EC), Clock())
    assert _found(provider, "ES256", "ec") == "ec"
    for kid in ("rsa", None):
        with pytest.raises(UnknownSigningKeyError):
            _found(provider, "RS256", kid)


async def test_a_new_key_is_known_after_a_pause_and_a_withdrawn_one_forgotten() -> None:
    site, clock = FakeFetch(RSA), Clock()
    provider = Provider(ISSUER, site, clock)
    await provider.signing_key("RS256", "rsa")
    site.documents[KEYS] = {"keys": [EC]}
    clock.now += 29.5
    with pytest.raises(UnknownSigningKeyError):
        await provider.signing_key("ES256", "ec")
    clock.now += 0.5
    assert (await provider.signing_key("ES256", "ec")).kid == "ec"
    with pytest.raises(UnknownSigningKeyError):
        await provider.signing_key("RS256", "rsa")


async def test_a_withdrawn_key_is_forgotten_though_no_new_one_is_asked_for() -> None:
    site, clock = FakeFetch(RSA), Clock()
    provider = Provider(ISSUER, site, clock)
    await provider.signing_key("RS256", "rsa")
    site.documents[KEYS] = {"keys": [EC]}
    clock.now += 300
    await provider.signing_key("RS256", "rsa")
    assert provider._renewal is None
    # The old keys still serve while one background task fetches new ones.
    clock.now += 1
    for _ in range(3):
        await provider.signing_key("RS256", "rsa")
    assert provider._renewal is not None
    await provider._renewal
    with pytest.raises(UnknownSigningKeyError):
        await provider.signing_key("RS256", "rsa")
    for passed, request_count in ((600, 4), (1, 6)):
        clock.now += passed
        await provider.discovery()
        assert len(site.requests) == request_count
    site.documents[KEYS] = {"keys": [RSA]}
    clock.now += 600
    assert (await provider.signing_key("ES256", "ec")).kid == "ec"
    clock.now += 1
    with pytest.raises(UnknownSigningKeyError):
        await provider.signing_key("ES256", "ec")


async def test_known_keys_hold_while_the_provider_is_down_and_others_are_not_said_to_be_wrong() -> None:
    site, clock = FakeFetch(RSA), Clock()
    provider = Provider(ISSUER, site, clock)
    site.down = True
    with pytest.raises(ProviderError):
        await provider.signing_key("RS256", "rsa")
    site.down = False
    clock.now += 31
    await provider.signing_key("RS256", "rsa")
    site.down = True
    clock.now += 10_000
    assert (await provider.signing_key("RS256", "rsa")).kid == "rsa"
    with pytest.raises(ProviderError):
        await provider.signing_key("ES256", "ec")


@pytest.mark.parametrize(
    ("discovery", "keys"),
    [
        ({"issuer": f"{ISSUER}/", "jwks_uri": KEYS}, {"keys": [RSA]}),
        ({"issuer": ISSUER, "jwks_uri": "http://login.example.org/keys"}, {"keys": [RSA]}),
        ({"issuer": ISSUER}, {"keys": [RSA]}),
        ([], {"keys": [RSA]}),
        ({"issuer": ISSUER, "jwks_uri": KEYS}, [RSA]),
        ({"issuer": ISSUER, "jwks_uri": KEYS}, {"keys": RSA}),
    ],
)
def test_a_provider_that_is_another_or_not_safe_is_not_used(discovery: Any, keys: Any) -> None:
    site = FakeFetch()
    site.documents = {f"{ISSUER}/.well-known/openid-configuration": discovery, KEYS: keys}
    with pytest.raises(ProviderError):
        _found(Provider(ISSUER, site, Clock()), "RS256", "rsa")


def test_the_address_of_the_keys_may_have_a_query() -> None:
    site, address = FakeFetch(RSA), f"{KEYS}?p=staff"
    site.documents = {
        f"{ISSUER}/.well-known/openid-configuration": {"issuer": ISSUER, "jwks_uri": address},
        address: site.documents[KEYS],
    }
    assert _found(Provider(ISSUER, site, Clock()), "RS256", "rsa") == "rsa"


@contextmanager
def _answering(status: int, body: bytes, **headers: str) -> Iterator[str]:
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

    with answering(Answer) as server:
        yield f"http://127.0.0.1:{server.server_port}/"


def test_a_document_is_read_whole() -> None:
    # As long as one may be.
    document = {"keys": ["x" * ((1 << 20) - 14)]}
    assert len(json.dumps(document)) == 1 << 20
    with _answering(200, json.dumps(document).encode()) as url:
        assert asyncio.run(fetch_json(url)) == document


@pytest.mark.parametrize(
    ("status", "body", "headers", "message"),
    [
        (404, b"{}", {}, "answers with status 404."),
        (300, b"{}", {}, "answers with status 300."),
        (302, b"", {"Location": "http://127.0.0.1:1/"}, "answers with status 302."),
        (200, b"no JSON", {}, "has no JSON document."),
        (200, b'"' + b"x" * ((1 << 20) - 1) + b'"', {}, "answers with over 1,048,576 bytes."),
    ],
)
def test_another_answer_is_an_error_in_a_sentence(
    status: int, body: bytes, headers: dict[str, str], message: str
) -> None:
    with _answering(status, body, **headers) as url, pytest.raises(ProviderError, match=f"^{url} {message}$"):
        asyncio.run(fetch_json(url))


def test_nobody_at_the_address_is_an_error_in_a_sentence() -> None:
    with pytest.raises(ProviderError, match="cannot be reached"):
        asyncio.run(fetch_json("http://127.0.0.1:1/"))


SIGNER = SessionSigner(b"s" * 32)
HERE = "https://images.example.org/"


@pytest.mark.parametrize("path", ["/", "/operate", f"/{'a' * 998}/", "/a/b-c_d.e~f/%C3%A9", "/a;b=c,d@e:f"])
def test_paths_of_this_service_are_taken(path: str) -> None:
    assert is_own_path(path)


@pytest.mark.parametrize(
    "path",
    [
        "", "operate", "//evil.example", "/\\evil.example", "\\/evil.example", "/a//b", "///", "/ evil",
        "https://evil.example", "https:/evil.example", "javascript:alert(1)", "/\tevil", "/\n/evil.example",
        "/\x00", "/a\r\nSet-Cookie: x=y", "/a?b", "/a#b", "/é", "/a/\u2028", "/" + "a" * 1_000,
    ],
)  # fmt: skip
def test_other_addresses_are_refused(path: str) -> None:
    assert not is_own_path(path)
    with pytest.raises(ValueError, match="no path"):
        begin_attempt(SIGNER, path)


@given(st.text(st.sampled_from("/\\.:@ae%?#\t\n\x00") | st.characters(), max_size=12).map("/".__add__))
@example("/..//evil.example")
@example("/.//evil.example")
def test_a_path_that_is_taken_leads_to_the_same_origin(path: str) -> None:
    if not is_own_path(path):
        return
    # Browsers leave tabs and ends of lines out, and take a backslash for a slash.
    as_browsers_read = "".join(char for char in path if char not in "\t\r\n").replace("\\", "/")
    result = urlsplit(urljoin(HERE, as_browsers_read))
    assert (result.scheme, result.netloc) == ("https", "images.example.org")
    assert not as_browsers_read.startswith("//")
    assert result.path.startswith("/")
    assert path.isascii()
    assert path.isprintable()


def _request_with_cookie(cookie: str | None) -> Request:
    headers = [] if cookie is None else [(b"cookie", f"{COOKIE}={cookie}".encode("latin-1"))]
    scope = {
        "type": "http", "method": "GET", "path": "/", "root_path": "", "scheme": "https", "query_string": b"",
        "server": ("localhost", 443), "headers": headers,
    }  # fmt: skip
    return Request(scope)


def _sealed(signer: SessionSigner = SIGNER, return_to: str = "/operate") -> tuple[str, str]:
    attempt, response = begin_attempt(signer, return_to), Response()
    keep_attempt(_request_with_cookie(None), response, signer, attempt)
    first, *parts = response.headers["set-cookie"].split("; ")
    assert {"HttpOnly", "SameSite=lax", "Secure", "Path=/", "Max-Age=600"} == set(parts)
    return first.removeprefix(f"{COOKIE}="), attempt.state


def test_an_answer_is_taken_from_the_browser_that_began_with_its_state_until_it_ends() -> None:
    now = [1_000_000.0]
    signer = SessionSigner(b"s" * 32, lambda: now[0])
    sealed, state = _sealed(signer)
    attempt = find_attempt(_request_with_cookie(sealed), signer, state)
    assert attempt is not None
    assert (attempt.state, attempt.return_to) == (state, "/operate")
    # Another browser, another sign-in of the same browser, and none at all.
    other_sealed, other_state = _sealed(signer)
    assert find_attempt(_request_with_cookie(None), signer, state) is None
    assert find_attempt(_request_with_cookie(other_sealed), signer, state) is None
    assert find_attempt(_request_with_cookie(sealed), signer, other_state) is None
    assert find_attempt(_request_with_cookie(sealed), signer, "") is None
    assert find_attempt(_request_with_cookie(sealed), signer, "é") is None
    now[0] += LIFETIME_S - 1
    assert find_attempt(_request_with_cookie(sealed), signer, state) == attempt
    now[0] += 1
    assert find_attempt(_request_with_cookie(sealed), signer, state) is None


@given(st.data())
def test_a_changed_cookie_is_no_sign_in(data: st.DataObject) -> None:
    sealed, state = _sealed()
    # The last character of unpadded base64 may have bits that say nothing.
    position = data.draw(st.integers(0, len(sealed) - 2))
    # Cookies differ from run to run, and hypothesis must be able to draw the same again.
    others = [one for one in "Az09-_." if one != sealed[position]]
    character = others[data.draw(st.integers(0, 5))]
    changed = sealed[:position] + character + sealed[position + 1 :]
    assert find_attempt(_request_with_cookie(changed), SIGNER, state) is None


def test_a_session_is_no_sign_in_and_the_other_way_round() -> None:
    person = Principal("token", "https://id#somebody", "Ada", {})
    session = SIGNER.seal(SIGNER.begin(person, None))
    sealed, state = _sealed()
    assert SIGNER.open(sealed) is None
    assert find_attempt(_request_with_cookie(session), SIGNER, state) is None
    assert find_attempt(_request_with_cookie(sealed), SessionSigner(b"t" * 32), state) is None


def test_sign_ins_share_no_secret() -> None:
    one, other = (begin_attempt(SIGNER, "/") for _ in range(2))
    drawn = [one.state, one.nonce, one.verifier, other.state, other.nonce, other.verifier]
    assert len(set(drawn)) == len(drawn)
    # RFC 7636, section 4.1.
    assert all(43 <= len(value) <= 128 for value in drawn)


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
    ("supported", "scopes"),
    [
        (["openid", "profile", "email", "offline_access"], "openid profile email"),
        (["groups", "openid"], "openid groups"),
        (["profile"], "openid profile"),
        ([1], "openid profile"),
    ],
)
def test_scopes_are_those_that_the_provider_knows(site: Site, supported: list[Any], scopes: str) -> None:
    site.discovery["scopes_supported"] = supported
    url = asyncio.run(site.flow().authorization_url(ATTEMPT, CALLBACK))
    assert parse_qs(urlsplit(url).query)["scope"] == [scopes]


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
    ("supported", "basic"),
    [
        (None, True),
        (["client_secret_basic", "client_secret_post"], True),
        (["client_secret_post", "private_key_jwt"], False),
    ],
)
def test_a_client_with_a_secret_sends_it_as_the_provider_takes_it(
    site: Site, supported: list[str] | None, basic: bool
) -> None:
    if supported is not None:
        site.discovery["token_endpoint_auth_methods_supported"] = supported
    site.give()
    _redeem(site.flow(oidc_client_secret=SECRET))
    ((form, authorization),) = site.sent
    if basic:
        # RFC 6749, section 2.3.1.
        expected = base64.b64encode(b"page+%26+more:hidden%3A+100+%25").decode()
        assert authorization == f"Basic {expected}"
        assert "client_secret" not in form
    else:
        assert authorization is None
        assert form["client_secret"] == [SECRET]


@pytest.mark.parametrize(
    ("changed", "at_fault"),
    [
        ({"nonce": "another"}, "nonce"), ({"nonce": None}, "nonce"), ({"aud": "another client"}, "aud"),
        ({"aud": None}, "aud"), ({"azp": "another client"}, "azp"), ({"iss": ISSUER}, "iss"),
        ({"exp": 1_000_000}, None), ({"exp": None}, "exp"), ({"sub": None}, "sub"), ({"sub": ""}, "sub"),
        ({"pad": "x" * 24_576}, ""), ({"header": {"kid": "second"}}, ""), ({"header": {"typ": "at+jwt"}}, ""),
        ({"key": RSAKey.generate_key(2048, {"kid": "first"})}, ""),
    ],
    ids=lambda given: "another key" if given and "key" in given else str(given)[:40],
)  # fmt: skip
def test_an_id_token_that_is_not_for_this_sign_in_is_refused(
    site: Site, changed: dict[str, Any], at_fault: str | None
) -> None:
    flow = site.flow()
    site.give(aud=[CLIENT, "another"], azp=CLIENT, exp=int(time.time()) - 50, pad="x" * 22_000)
    assert _redeem(flow).name == "Ada"
    site.give(**changed)
    with pytest.raises(RequestError) as refused:
        _redeem(flow)
    kind, message = "token-expired", "The token has expired: get a new one."
    if at_fault is not None:
        reason = f"its claim {at_fault!r}" if at_fault else "its form or signature"
        kind, message = "wrong-token", f"The token is not one for this service: {reason} does not fit."
    assert (refused.value.kind.slug, str(refused.value)) == (kind, message)
    assert refused.value.kind.authenticate == 'Bearer error="invalid_token"'


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
    ("public", "request_", "expected"),
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
    site: Site, public: str | None, request_: Request, expected: str
) -> None:
    assert site.flow(public_url=public).redirect_uri(request_) == expected

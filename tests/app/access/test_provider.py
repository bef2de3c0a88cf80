"""Signing keys of a provider: fetched over HTTP, kept, renewed, never from where anybody may change them."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey

from app.access.oidc import Provider, ProviderError, UnknownSigningKeyError, fetch_json
from tests.answering import answering
from tests.app.access.test_key_guesses import Clock

Documents = dict[str, Any]
ISSUER = "https://login.example.org"
KEYS = "https://login.example.org/keys"


class Site:
    """What a provider answers, and what it was asked."""

    def __init__(self, *keys: dict[str, Any]) -> None:
        self.documents: Documents = {
            f"{ISSUER}/.well-known/openid-configuration": {"issuer": ISSUER, "jwks_uri": KEYS},
            KEYS: {"keys": list(keys)},
        }
        self.asked: list[str] = []
        self.down = False

    async def __call__(self, url: str) -> Any:
        self.asked.append(url)
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
    site = Site(RSA, EC, ED)
    provider = Provider(ISSUER, site, Clock())
    for algorithm, kid in (("RS256", "rsa"), ("PS256", "rsa"), ("ES256", "ec"), ("EdDSA", "ed")):
        assert _found(provider, algorithm, kid) == kid
    assert len(site.asked) == 2
    for algorithm, kid in (("ES256", "rsa"), ("RS256", "ec"), ("RS256", "another")):
        with pytest.raises(UnknownSigningKeyError):
            _found(provider, algorithm, kid)
    # Whatever tokens name, the provider is not asked again so soon.
    assert len(site.asked) == 2


def test_a_key_without_a_name_is_taken_if_it_is_the_only_one() -> None:
    assert _found(Provider(ISSUER, Site(RSA, EC), Clock()), "RS256", None) == "rsa"
    with pytest.raises(UnknownSigningKeyError):
        _found(Provider(ISSUER, Site(RSA, {**RSA, "kid": "2"}), Clock()), "RS256", None)


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
    provider = Provider(ISSUER, Site(unfit, EC), Clock())
    assert _found(provider, "ES256", "ec") == "ec"
    with pytest.raises(UnknownSigningKeyError):
        _found(provider, "RS256", "rsa")


def test_a_new_key_is_known_after_a_pause_and_a_withdrawn_one_forgotten() -> None:
    site, clock = Site(RSA), Clock()
    provider = Provider(ISSUER, site, clock)

    async def rotate() -> None:
        await provider.signing_key("RS256", "rsa")
        site.documents[KEYS] = {"keys": [EC]}
        clock.now += 29
        with pytest.raises(UnknownSigningKeyError):
            await provider.signing_key("ES256", "ec")
        clock.now += 2
        assert (await provider.signing_key("ES256", "ec")).kid == "ec"
        with pytest.raises(UnknownSigningKeyError):
            await provider.signing_key("RS256", "rsa")

    asyncio.run(rotate())


def test_a_withdrawn_key_is_forgotten_though_no_new_one_is_asked_for() -> None:
    site, clock = Site(RSA), Clock()
    provider = Provider(ISSUER, site, clock)

    async def withdraw() -> None:
        await provider.signing_key("RS256", "rsa")
        site.documents[KEYS] = {"keys": [EC]}
        clock.now += 301
        # Known still, while it is looked up beside the request.
        await provider.signing_key("RS256", "rsa")
        assert provider._renewal is not None
        await provider._renewal
        with pytest.raises(UnknownSigningKeyError):
            await provider.signing_key("RS256", "rsa")

    asyncio.run(withdraw())


def test_known_keys_hold_while_the_provider_is_down_and_others_are_not_said_to_be_wrong() -> None:
    site, clock = Site(RSA), Clock()
    provider = Provider(ISSUER, site, clock)

    async def go_down() -> None:
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

    asyncio.run(go_down())


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
    site = Site()
    site.documents = {f"{ISSUER}/.well-known/openid-configuration": discovery, KEYS: keys}
    with pytest.raises(ProviderError):
        _found(Provider(ISSUER, site, Clock()), "RS256", "rsa")


def test_the_address_of_the_keys_may_have_a_query() -> None:
    site, address = Site(RSA), f"{KEYS}?p=staff"
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
    wanted = {"keys": ["x" * 100_000]}
    with _answering(200, json.dumps(wanted).encode()) as url:
        assert asyncio.run(fetch_json(url)) == wanted


@pytest.mark.parametrize(
    ("status", "body", "headers"),
    [
        (404, b"{}", {}),
        (302, b"", {"Location": "http://127.0.0.1:1/"}),
        (200, b"no JSON", {}),
        (200, b'"' + b"x" * (1 << 20) + b'"', {}),
    ],
)
def test_another_answer_is_an_error_in_a_sentence(status: int, body: bytes, headers: dict[str, str]) -> None:
    with _answering(status, body, **headers) as url, pytest.raises(ProviderError, match=url):
        asyncio.run(fetch_json(url))


def test_nobody_at_the_address_is_an_error_in_a_sentence() -> None:
    with pytest.raises(ProviderError, match="cannot be reached"):
        asyncio.run(fetch_json("http://127.0.0.1:1/"))

"""Sessions of browsers and links to pictures: what they allow, and when they end."""

import io
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from fastapi.testclient import TestClient
from httpx2 import Response
from joserfc import jwt
from pydantic import SecretStr
from sqlalchemy import update

from app.access.sessions import COOKIE, LIFETIME_S, SessionSigner, linked_address
from app.application import create_app
from app.edge.principal import Principal
from app.edge.problems import RequestError
from index.catalogue.tables import ApiKeyRow
from index.keys.api_keys import Grants, revoke_key
from tests.access import ADMIN_KEY, AS_ADMIN, bearer
from tests.app.access.conftest import with_checked_settings
from tests.app.audit.test_requests import audited
from tests.app.conftest import COLLECTION, Indexed, serve
from tests.oidc import AUDIENCE, OidcProvider

SESSION = "/v1/session"
HERE = f"/v1/collections/{COLLECTION}"
JUDGEMENT = {"query": {"text": "a boat"}, "hit": "image-1", "relevant": True}


@pytest.fixture(scope="module")
def closed(make_indexed: Callable[..., Indexed], oidc: OidcProvider) -> Indexed:
    provider = {"oidc_issuer": oidc.issuer, "oidc_audience": AUDIENCE}
    roles = {"readers": {COLLECTION: ["reader"]}}
    closed = {"open_reading": False, "open_feedback": False}
    return with_checked_settings(make_indexed(), **closed, **provider, oidc_roles=roles)


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
    parameters = {"HttpOnly", "SameSite=strict", "Path=/", "Max-Age=43200"}
    assert set(parts) == parameters | ({"Secure"} if secure else set())
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
        with serve(closed, key=False, admin_key=SecretStr(key) if isinstance(key, str) else key) as again:
            again.cookies.update(dict(browser.cookies))
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
    results = [event for event in events if event["actor"]["name"] == "Dr Noted"]
    assert [event["action"] for event in results] == ["sign-in", "view", "sign-out"]
    assert {event["actor"]["id"] for event in results} == {key.split("_")[1]}
    assert {event["actor"]["kind"] for event in results} == {"session"}


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
    for position in range(0, len(sealed) - 1, 7):
        changed = f"{sealed[:position]}{'A' if sealed[position] != 'A' else 'B'}{sealed[position + 1 :]}"
        assert signer.open(changed) is None, position


def test_sessions_have_csrf_tokens_of_their_own() -> None:
    signer = SessionSigner(b"s" * 32)
    first, second = signer.begin(PRINCIPAL, None), signer.begin(PRINCIPAL, None)
    assert signer.csrf_token(first) == signer.csrf_token(first)
    assert signer.csrf_token(first) != signer.csrf_token(second)
    assert signer.csrf_token(first) not in signer.seal(first)


def test_more_roles_than_a_cookie_holds_are_told() -> None:
    many: Grants = {f"collection-{position}": frozenset({"reader"}) for position in range(200)}
    signer = SessionSigner(b"s" * 32)
    with pytest.raises(RequestError, match="200 collections"):
        signer.seal(signer.begin(replace(PRINCIPAL, grants=many), None))
    # A key's are looked up.
    assert len(json.dumps(signer.seal(signer.begin(replace(PRINCIPAL, grants=many), b"digest")))) < 1000


IMAGES = f"/v1/collections/{COLLECTION}/images"
NOW = 1_000_000.0


@dataclass(frozen=True)
class Service:
    """A service that nobody may read without a key."""

    client: TestClient
    home: Indexed

    def key(self, *, collection: str = COLLECTION) -> str:
        """A key of a reader."""
        return self.home.key("reader", collection, name=f"viewer {time.monotonic()}")

    def link(self, credential: str | None, image: str = "image-3", **parameters: Any) -> Response:
        """Ask for a link."""
        headers = {} if credential is None else bearer(credential)
        answer: Response = self.client.post(f"{IMAGES}/{image}/link", json=parameters, headers=headers)
        return answer

    def url(self, credential: str, image: str = "image-3", **parameters: Any) -> str:
        """The address of a link."""
        answer = self.link(credential, image, **parameters)
        assert answer.status_code == 200, answer.text
        body: str = answer.json()["url"]
        return body


@pytest.fixture
def service(own: Indexed, oidc: OidcProvider) -> Iterator[Service]:
    roles = {"readers": {"*": ["reader"]}}
    provider = {"oidc_issuer": oidc.issuer, "oidc_audience": AUDIENCE, "oidc_roles": roles}
    home = with_checked_settings(own, open_reading=False, **provider)
    with serve(home, key=False) as client:
        yield Service(client, home)


def refused(answer: Response, kind: str) -> None:
    assert (answer.status_code, answer.json()["type"]) == (403, f"urn:recoquest:{kind}"), answer.text


@pytest.mark.parametrize(
    "rendition", ["thumbnail", "content", {}, {"size": 16}, {"size": 16, "window": "100,50"}]
)
def test_a_link_shows_what_its_maker_sees(service: Service, rendition: Any) -> None:
    key = service.key()
    url = service.url(key, rendition=rendition, expires_in=60)
    linked = service.client.get(url)
    assert linked.status_code == 200, linked.text
    bare = url.replace("&link=", "?link=").partition("?link=")[0]
    seen = service.client.get(bare, headers=bearer(key))
    assert linked.content == seen.content
    private, _, rest = linked.headers["cache-control"].partition(", max-age=")
    assert private == "private"
    assert 50 <= int(rest) <= 60
    assert linked.headers["referrer-policy"] == "no-referrer"
    assert linked.headers["cross-origin-resource-policy"] == "cross-origin"
    assert seen.headers["cache-control"] == "private, no-cache"
    again = service.client.get(url, headers={"If-None-Match": linked.headers["etag"]})
    assert again.status_code == 304


def test_a_link_opens_no_other_address(service: Service) -> None:
    url = service.url(service.key(), rendition={"size": 16})
    link = quote(parse_qs(urlsplit(url).query)["link"][0])
    here = f"{IMAGES}/image-3"
    for other in (
        f"{here}/rendition?size=17&window=auto&link={link}",
        f"{here}/rendition?window=auto&link={link}",
        f"{here}/rendition?size=16&link={link}",
        f"{url}&size=16",
        f"{url}&new=1",
        f"{url}&link={link}",
        url.replace("image-3", "image-4"),
        f"{here}/thumbnail?link={link}",
        f"{here}/content?size=16&window=auto&link={link}",
        url.replace("link=", "link=A"),
        f"{url[:-6]}AAAAAA",
        f"{here}/thumbnail?link=",
        f"{here}/thumbnail?link=%00.%ff",
    ):
        refused(service.client.get(other), "wrong-link")
    for other in (here, f"/v1/collections/{COLLECTION}", f"{here}/levels"):
        assert service.client.get(f"{other}?link={link}").status_code == 401
    assert service.client.delete(f"{here}?link={link}").status_code == 401
    # Another order is the same parameters.
    assert service.client.get(f"{here}/rendition?link={link}&window=auto&size=16").status_code == 200


def test_a_link_counts_alone_and_is_no_right_of_whoever_opens_it(service: Service) -> None:
    url = service.url(service.key(), rendition="thumbnail")
    stranger = service.key(collection="elsewhere")
    assert service.client.get(url, headers=bearer(stranger)).status_code == 200
    refused(service.client.get(f"{url[:-6]}AAAAAA", headers=AS_ADMIN), "wrong-link")


@pytest.mark.parametrize("how", ["revoked", "expired", "elsewhere"])
def test_a_link_ends_with_the_right_of_its_maker(service: Service, how: str) -> None:
    key = service.key()
    url = service.url(key, rendition="thumbnail")
    assert service.client.get(url).status_code == 200
    with service.home.write() as session:
        named = update(ApiKeyRow).where(ApiKeyRow.id == key.split("_")[1])
        if how == "revoked":
            revoke_key(session, key.split("_")[1])
        elif how == "expired":
            session.execute(named.values(expires="2001-01-01T00:00:00.000000+00:00"))
        else:
            session.execute(named.values(grants={"elsewhere": ["reader"]}))
    time.sleep(1.1)
    refused(service.client.get(url), "link-ended")


def test_a_link_shows_no_picture_of_another_collection_that_gets_the_name(
    service: Service, own: Indexed
) -> None:
    by_key = service.url(service.key(), rendition="thumbnail")
    by_admin = service.url(ADMIN_KEY, rendition="thumbnail")
    picture = service.client.get(by_key).content
    moved = service.client.patch(f"/v1/collections/{COLLECTION}", json={"name": "moved"}, headers=AS_ADMIN)
    assert moved.status_code == 200, moved.text
    for url in (by_key, by_admin):
        refused(service.client.get(url), "wrong-link")
    # The same ids, so that the path of the link is that of a picture again.
    own.index(COLLECTION, own.bundle)
    for url in (by_key, by_admin):
        refused(service.client.get(url), "wrong-link")
        assert service.client.get(url.replace(f"/{COLLECTION}/", "/moved/")).content == picture
    assert service.client.delete(f"/v1/collections/{COLLECTION}", headers=AS_ADMIN).status_code == 200
    for url in (by_key, by_admin):
        refused(service.client.get(url), "wrong-link")
    alias = service.client.put(f"/v1/aliases/{COLLECTION}", json={"collection": "moved"}, headers=AS_ADMIN)
    assert alias.status_code == 201
    for url in (by_key, by_admin):
        assert service.client.get(url).content == picture


def test_a_link_of_a_token_or_a_session_shows_its_collection(service: Service, oidc: OidcProvider) -> None:
    token = oidc.token("readers")
    assert service.client.get(service.url(token, rendition="thumbnail")).status_code == 200
    begun = service.client.post("/v1/session", headers=bearer(service.key()))
    headers = {"X-CSRF-Token": begun.json()["csrf_token"]}
    made = service.client.post(f"{IMAGES}/image-3/link", json={"rendition": "thumbnail"}, headers=headers)
    assert made.status_code == 200, made.text
    assert service.client.post(f"{IMAGES}/image-3/link", json={}).status_code == 403
    service.client.cookies.clear()
    assert service.client.get(made.json()["url"]).status_code == 200


@pytest.mark.slow
def test_a_link_keeps_no_role_that_the_settings_gave_to_everybody(
    service: Service, oidc: OidcProvider
) -> None:
    opened = service.home.with_settings(open_reading=True)
    with serve(opened, key=False) as client:
        url = Service(client, opened).url(oidc.token("strangers"), rendition="thumbnail")
        assert client.get(url).status_code == 200
    refused(service.client.get(url), "link-ended")


def test_wrong_requests_for_links(service: Service) -> None:
    key = service.key()
    assert service.link(None).status_code == 401
    assert service.link(service.key(collection="elsewhere")).status_code == 403
    assert service.link(key, "no-such").status_code == 404
    for parameters in (
        {"expires_in": 86_401}, {"expires_in": 0}, {"rendition": "original"}, {"rendition": {"size": 0}},
        {"rendition": {"window": "wide"}}, {"rendition": {"colour": 1}}, {"until": 5},
    ):  # fmt: skip
        assert service.link(key, **parameters).status_code == 422, parameters


def test_the_trail_names_the_maker_and_the_log_no_address(service: Service, json_log: io.StringIO) -> None:
    key = service.key()
    url = service.url(key, rendition="content", expires_in=60)
    assert service.client.get(url).status_code == 200
    made, used = audited(service.client, action="export")
    assert {made["details"]["operation"], used["details"]["operation"]} == {"link_image", "get_content"}
    by = {event["details"]["operation"]: event["actor"] for event in (made, used)}
    assert by["link_image"]["id"] == by["get_content"]["id"] == key.split("_")[1]
    assert (by["link_image"]["kind"], by["get_content"]["kind"]) == ("key", "link")
    assert parse_qs(urlsplit(url).query)["link"][0] not in json_log.getvalue()


def test_pages_of_other_sites_show_a_link_and_nothing_by_a_cookie(service: Service) -> None:
    url = service.url(service.key(), rendition={"size": 16})
    elsewhere = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}
    assert service.client.get(url, headers=elsewhere).status_code == 200
    bare = url.partition("?")[0]
    refused(service.client.get(bare, headers={**elsewhere, **AS_ADMIN}), "foreign-page")
    refused(service.client.get(f"{bare}?link=x", headers={**elsewhere, **AS_ADMIN}), "wrong-link")
    refused(service.client.get(f"{IMAGES}/image-3/levels?link=x", headers=elsewhere), "foreign-page")


def test_a_link_holds_until_its_end_and_no_second_longer() -> None:
    sessions, address = SessionSigner(b"s" * 32, lambda: NOW), linked_address(1, "x/y", "content", [])
    maker = sessions.begin(Principal("key", "k", "n", {}), b"digest")
    assert maker.expires == NOW + LIFETIME_S
    sealed = sessions.seal_link(maker, address)
    last = SessionSigner(b"s" * 32, lambda: maker.expires - 1)
    assert last.open_link(sealed, address) == maker
    with pytest.raises(RequestError, match="has expired"):
        SessionSigner(b"s" * 32, lambda: maker.expires).open_link(sealed, address)
    other = SessionSigner(b"t" * 32, lambda: NOW)
    with pytest.raises(RequestError, match="another picture"):
        other.open_link(sealed, address)
    # No cookie of a session is a link, and no link a cookie.
    assert sessions.open(sealed) is None
    with pytest.raises(RequestError, match="another picture"):
        sessions.open_link(sessions.seal(maker), address)


def test_no_two_addresses_are_signed_alike() -> None:
    signed = {
        linked_address(1, "b", "content", []),
        linked_address(1, "b/content", "content", []),
        linked_address(11, "b", "content", []),
        linked_address(1, "b", "content", [("c", "d&e=f")]),
        linked_address(1, "b", "content", [("c", "d"), ("e", "f")]),
    }
    assert len(signed) == 5

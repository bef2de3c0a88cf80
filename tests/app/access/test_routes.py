"""Sign-in at a provider, as a browser sees it: the whole way at a real one, and events of failures."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from html import unescape
from typing import Any
from urllib.parse import parse_qs, urljoin, urlsplit

import httpx2
import pytest
from fastapi.testclient import TestClient

from app.access.oidc import COOKIE as ATTEMPT_COOKIE
from app.access.sessions import COOKIE, LIFETIME_S
from app.application import create_app
from app.audit import requests
from tests.access import AS_ADMIN
from tests.app.access.conftest import CLIENT, Site, with_checked_settings
from tests.app.audit.written import written_events
from tests.app.conftest import COLLECTION, Indexed
from tests.oidc import CLIENT_SECRET, CONFIDENTIAL_CLIENT, PUBLIC_CLIENT, OidcProvider

SERVICE = "http://localhost:8000"
BEGIN = "/v1/session/begin"
CALLBACK = "/v1/session/callback"
HERE = f"/v1/collections/{COLLECTION}"
# As Chromium sends it with an answer from another site.
FROM_ELSEWHERE = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
_FORM = re.compile(r'<form[^>]*action="([^"]+)"')
_PROMPT = re.compile(r'name="prompt" value="(\w+)"')


@dataclass(frozen=True)
class Person:
    """A browser at a service, and its way to the provider."""

    browser: TestClient
    elsewhere: httpx2.Client

    def walk(self, login: str, return_to: str = "/operate") -> str:
        """Begin, sign in at the provider, and give the address that it sends the browser back to."""
        answer = self.elsewhere.get(self.begin(return_to))
        for _ in range(12):
            location = answer.headers.get("location")
            if location is not None and location.startswith(SERVICE):
                return location
            if location is not None:
                answer = self.elsewhere.get(urljoin(str(answer.url), location))
                continue
            action, prompt = _FORM.search(answer.text), _PROMPT.search(answer.text)
            assert action is not None
            assert prompt is not None
            form = {"prompt": prompt[1], "login": login, "password": "any"}
            answer = self.elsewhere.post(urljoin(str(answer.url), unescape(action[1])), data=form)
        raise AssertionError(f"No way back from {answer.url}")

    def begin(self, return_to: str) -> str:
        """The address of the provider that the service leads to."""
        answer = self.browser.get(BEGIN, params={"return_to": return_to})
        assert answer.status_code == 303, answer.text
        return str(answer.headers["location"])

    def come_back(self, address: str) -> str:
        """Follow the provider's address back; gives where the service leads then."""
        answer = self.browser.get(address, headers=FROM_ELSEWHERE)
        assert answer.status_code == 303, answer.text
        assert answer.headers["cache-control"] == "no-store"
        return str(answer.headers["location"])


@pytest.fixture(scope="module")
def home(make_indexed: Callable[..., Indexed]) -> Indexed:
    return make_indexed()


@pytest.fixture(scope="module", params=["public", "confidential"])
def application(home: Indexed, oidc: OidcProvider, request: pytest.FixtureRequest) -> Iterator[Any]:
    client = {
        "public": {"oidc_client_id": PUBLIC_CLIENT},
        "confidential": {"oidc_client_id": CONFIDENTIAL_CLIENT, "oidc_client_secret": CLIENT_SECRET},
    }[request.param]
    roles = {"judges": {COLLECTION: ["judge"]}}
    closed = {"open_reading": False, "open_feedback": False}
    changed = with_checked_settings(home, **closed, **client, oidc_issuer=oidc.issuer, oidc_roles=roles)
    application = create_app(changed.settings)
    with TestClient(application, SERVICE):
        yield application


@pytest.fixture
def person(application: Any) -> Iterator[Person]:
    with httpx2.Client(follow_redirects=False, timeout=30) as elsewhere:
        yield Person(TestClient(application, SERVICE, follow_redirects=False), elsewhere)


def test_a_person_signs_in_judges_and_signs_out(person: Person, oidc: OidcProvider) -> None:
    nobody = person.browser.get("/v1/session").json()
    assert (nobody["kind"], nobody["provider_sign_in"]) == ("anonymous", True)
    address = person.walk("judges")
    assert person.come_back(address) == "/operate"
    assert ATTEMPT_COOKIE not in person.browser.cookies
    state = person.browser.get("/v1/session").json()
    assert (state["kind"], state["name"]) == ("session", "Dr judges")
    assert state["roles"] == {COLLECTION: ["judge"]}
    out = urlsplit(state["provider_sign_out"])
    assert state["provider_sign_out"].startswith(oidc.issuer)
    assert set(parse_qs(out.query)) == {"client_id"}
    csrf = {"X-CSRF-Token": state["csrf_token"]}
    judgement = {"query": {"text": "a boat"}, "hit": "image-1", "relevant": True}
    assert person.browser.post(f"{HERE}/feedback", json=judgement, headers=csrf).status_code < 300
    assert person.browser.get("/v1/jobs").status_code == 403
    # The provider's own code and state are used up.
    assert person.come_back(address) == "/#sign-in=ended"
    assert person.browser.get("/v1/session").json()["kind"] == "session"
    assert person.browser.delete("/v1/session", headers=csrf).status_code == 204
    assert person.browser.get(HERE).status_code == 401
    assert person.come_back(address) == "/#sign-in=ended"
    assert COOKIE not in person.browser.cookies
    events = person.browser.get("/v1/audit", headers=AS_ADMIN, params={"limit": 200}).json()["events"]
    its = [event["details"]["operation"] for event in events if event["actor"]["name"] == "Dr judges"]
    assert its.count("finish_sign_in") >= its.count("end_session") >= 1


def test_a_session_lasts_longer_than_the_moment_of_its_token_and_its_cookie_is_strict(person: Person) -> None:
    answer = person.browser.get(person.walk("judges", "/"), headers=FROM_ELSEWHERE)
    cookies = {one.split("=")[0]: one.split("; ") for one in answer.headers.get_list("set-cookie")}
    assert {"HttpOnly", "SameSite=strict", f"Max-Age={LIFETIME_S}"} <= set(cookies[COOKIE])
    assert "Max-Age=0" in cookies[ATTEMPT_COOKIE]


def test_the_same_answer_in_another_browser_signs_nobody_in(person: Person, application: Any) -> None:
    address = person.walk("judges")
    other = TestClient(application, SERVICE, follow_redirects=False)
    for begun in (False, True):
        if begun:
            other.get(BEGIN)
        kept = dict(other.cookies)
        answer = other.get(address, headers=FROM_ELSEWHERE)
        assert answer.headers["location"] == "/#sign-in=ended"
        assert COOKIE not in other.cookies
        # An answer that somebody slips in ends no sign-in that continues.
        assert dict(other.cookies) == kept


def test_a_code_is_not_taken_twice(person: Person, application: Any) -> None:
    address = person.walk("judges")
    kept = dict(person.browser.cookies)
    assert person.come_back(address) == "/operate"
    # A copy of the cookie helps nobody: the provider gives nothing for the code any more.
    thief = TestClient(application, SERVICE, follow_redirects=False, cookies=kept)
    answer = thief.get(address, headers=FROM_ELSEWHERE)
    assert answer.headers["location"] == "/operate#sign-in=unfit"
    assert COOKIE not in thief.cookies


def test_a_person_without_a_group_that_has_roles_signs_in_and_may_nothing(person: Person) -> None:
    assert person.come_back(person.walk("strangers", "/")) == "/"
    state = person.browser.get("/v1/session").json()
    assert (state["name"], state["roles"]) == ("Dr strangers", {})
    refused = person.browser.get(HERE)
    assert refused.status_code == 403
    assert "ask the service's administrator" in refused.json()["detail"]


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ({"error": "access_denied"}, "refused"),
        ({"error": "server_error"}, "unavailable"),
        ({"error": "invalid_scope", "error_description": "<script>"}, "unfit"),
        ({"error": "<script>"}, "unfit"),
        ({}, "unfit"),
        ({"code": "guessed"}, "unfit"),
        ({"code": "guessed", "iss": "https://login.example.org"}, "unfit"),
    ],
)
def test_what_the_provider_says_instead_is_a_reason(
    person: Person, query: dict[str, str], reason: str
) -> None:
    begun = parse_qs(urlsplit(person.begin("/operate")).query)
    address = httpx2.URL(SERVICE + CALLBACK, params={**query, "state": begun["state"][0]})
    assert person.come_back(str(address)) == f"/operate#sign-in={reason}"
    assert ATTEMPT_COOKIE not in person.browser.cookies
    assert person.browser.get("/v1/session").json()["kind"] == "anonymous"
    # Without the state of this browser, not even that is believed.
    person.begin("/operate")
    assert person.come_back(str(address)) == "/#sign-in=ended"
    assert ATTEMPT_COOKIE in person.browser.cookies


def test_only_this_services_own_paths_are_come_back_to(person: Person) -> None:
    for path in ("//evil.example", "/\\evil.example", "https://evil.example", "/\n/evil.example"):
        refused = person.browser.get(BEGIN, params={"return_to": path})
        assert (refused.status_code, refused.json()["type"]) == (422, "urn:recoquest:invalid-request")


def test_a_page_of_another_site_begins_no_sign_in(person: Person) -> None:
    answer = person.browser.get(BEGIN, headers=FROM_ELSEWHERE)
    assert (answer.status_code, answer.json()["type"]) == (403, "urn:recoquest:foreign-page")


def test_a_provider_that_is_down_is_said_on_the_page(home: Indexed) -> None:
    down = {"open_reading": False, "oidc_issuer": "http://127.0.0.1:1", "oidc_client_id": PUBLIC_CLIENT}
    application = create_app(with_checked_settings(home, **down).settings)
    with TestClient(application, SERVICE, follow_redirects=False) as browser:
        assert browser.get(BEGIN).headers["location"] == "/#sign-in=unavailable"
        # Keys work as always.
        assert browser.get(HERE, headers=AS_ADMIN).status_code == 200


def test_without_a_client_nobody_is_led_anywhere(home: Indexed) -> None:
    with TestClient(create_app(home.settings), SERVICE, follow_redirects=False) as browser:
        for path in (BEGIN, CALLBACK):
            answer = browser.get(path)
            assert (answer.status_code, answer.json()["type"]) == (404, "urn:recoquest:no-sign-in")


@pytest.fixture
def service(own: Indexed, site: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    monkeypatch.setattr(requests, "_REFUSALS_SECONDS", 0.0)
    with _signing_in(own, site, {"scenes": ["reader"]}) as running:
        yield running


def _signing_in(own: Indexed, site: Site, roles: dict[str, list[str]]) -> TestClient:
    """A client of a service that gives these roles to the provider's group of readers."""
    provider = {"oidc_issuer": site.address, "oidc_client_id": CLIENT, "oidc_roles": {"readers": roles}}
    application = create_app(with_checked_settings(own, open_reading=False, **provider).settings)
    return TestClient(application, "http://localhost", client=("192.0.2.9", 5000), follow_redirects=False)


def _begin(service: TestClient) -> dict[str, str]:
    """Begin a sign-in; return the state and the nonce that the provider is given."""
    address = service.get("/v1/session/begin").headers["location"]
    return {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}


def _events(service: TestClient) -> list[dict[str, Any]]:
    return written_events(service, AS_ADMIN, action="sign-in")


def test_each_failure_is_an_event_with_its_reason_and_the_address(service: TestClient, site: Site) -> None:
    assert service.get(CALLBACK, params={"state": "another", "code": "x"}).status_code == 303
    invalid: list[tuple[int, dict[str, str]]] = [
        (200, {"error": "access_denied"}),
        (200, {"code": "x", "iss": "https://elsewhere"}),
        (400, {"code": "x"}),
        (200, {"code": "x"}),
        (500, {"code": "x"}),
    ]
    for site.status, answer in invalid:
        begun = _begin(service)
        site.give(nonce="another")
        if site.status == 400:
            site.answer = b'{"error": "invalid_grant"}'
        service.get(CALLBACK, params={"state": begun["state"], **answer})
    events = _events(service)
    reasons = ["ended", "refused", "unfit", "unfit", "unfit", "unavailable"]
    assert [event["details"]["reason"] for event in events] == reasons
    for event in events:
        recorded = (event["outcome"], event["address"], event["actor"]["kind"])
        assert recorded == ("failure", "192.0.2.9", "anonymous")
        assert event["details"]["operation"] == "finish_sign_in"


@pytest.mark.parametrize(("groups", "roles"), [(["readers"], None), (["others"], "none")])
def test_a_person_without_a_role_signs_in_and_the_event_says_so(
    service: TestClient, site: Site, groups: list[str], roles: str | None
) -> None:
    begun = _begin(service)
    site.give(nonce=begun["nonce"], groups=groups)
    assert service.get(CALLBACK, params={"state": begun["state"], "code": "x"}).headers["location"] == "/"
    (event,) = _events(service)
    assert (event["outcome"], event["actor"]["name"], event["address"]) == ("success", "Ada", "192.0.2.9")
    assert event["details"].get("roles") == roles


def test_a_session_that_is_too_large_names_the_person(own: Indexed, site: Site) -> None:
    many = {f"collection-{number}-{'x' * 80}": ["reader"] for number in range(60)}
    with _signing_in(own, site, many) as service:
        begun = _begin(service)
        site.give(nonce=begun["nonce"])
        answer = service.get(CALLBACK, params={"state": begun["state"], "code": "x"})
        assert answer.headers["location"] == "/#sign-in=too-many-roles"
        (event,) = _events(service)
    assert (event["outcome"], event["actor"]["name"]) == ("failure", "Ada")

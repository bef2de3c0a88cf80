"""The audit trail has sign-ins at a provider that failed, with their reason and address."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from fastapi.testclient import TestClient

from app.application import create_app
from app.audit import requests
from app.settings import Settings
from tests.access import AS_ADMIN
from tests.app.access.sign_in.conftest import CLIENT, Site
from tests.app.audit.written import written_events
from tests.app.conftest import Indexed

CALLBACK = "/v1/session/callback"


@pytest.fixture
def service(own: Indexed, site: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    monkeypatch.setattr(requests, "_REFUSALS_SECONDS", 0.0)
    changed = {
        "open_reading": False,
        "oidc_issuer": site.address,
        "oidc_client_id": CLIENT,
        "oidc_roles": {"readers": {"scenes": ["reader"]}},
    }
    application = create_app(Settings.model_validate(own.settings.model_dump() | changed))
    with TestClient(
        application, "http://localhost", client=("192.0.2.9", 5000), follow_redirects=False
    ) as running:
        yield running


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
    assert [event["details"]["reason"] for event in events] == [
        "ended", "refused", "unfit", "unfit", "unfit", "unavailable",
    ]  # fmt: skip
    for event in events:
        assert (event["outcome"], event["address"], event["actor"]["kind"]) == (
            "failure", "192.0.2.9", "anonymous",
        )  # fmt: skip
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
    changed = {
        "oidc_issuer": site.address, "oidc_client_id": CLIENT, "oidc_roles": {"readers": many},
    }  # fmt: skip
    settings = Settings.model_validate(own.settings.model_dump() | changed)
    with TestClient(create_app(settings), "http://localhost", follow_redirects=False) as service:
        begun = _begin(service)
        site.give(nonce=begun["nonce"])
        answer = service.get(CALLBACK, params={"state": begun["state"], "code": "x"})
        assert answer.headers["location"] == "/#sign-in=too-many-roles"
        (event,) = _events(service)
    assert (event["outcome"], event["actor"]["name"]) == ("failure", "Ada")

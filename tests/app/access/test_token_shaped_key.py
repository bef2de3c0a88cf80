"""An administrator's key in the form of a token, beside a provider of tokens."""

import base64
from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient
from pydantic import SecretStr

from app.application import create_app
from tests.app.conftest import Indexed

KEY = "an-admin-key.of-three.parts"
ADMINS = "/v1/jobs"


@pytest.fixture
def service(own: Indexed) -> Iterator[TestClient]:
    changed = {
        "open_reading": False,
        "admin_key": SecretStr(KEY),
        # No provider answers there.
        "oidc_issuer": "https://127.0.0.1:9/realm",
        "oidc_audience": "urn:recoquest",
    }
    settings = type(own.settings).model_validate(own.settings.model_dump() | changed)
    with TestClient(create_app(settings), "http://localhost") as running:
        yield running


def _status(service: TestClient, key: str) -> int:
    return service.get(ADMINS, headers={"Authorization": f"Bearer {key}"}).status_code


def test_the_key_is_taken_and_others_of_its_form_are_not(service: TestClient) -> None:
    assert _status(service, KEY) == 200
    assert _status(service, KEY + "x") == 401


def test_guesses_of_its_form_are_slowed_down(service: TestClient) -> None:
    statuses = [_status(service, f"a{number}.b.c") for number in range(8)]
    assert statuses[:5] == [401] * 5
    assert statuses[-1] == 429
    assert _status(service, KEY) == 200


def test_tokens_of_a_provider_that_is_away_are_no_guesses(service: TestClient) -> None:
    header, claims = (
        base64.urlsafe_b64encode(part).decode().rstrip("=") for part in (b'{"alg":"RS256"}', b'{"sub":"a"}')
    )
    statuses = [_status(service, f"{header}.{claims}.c2lnbmF0dXJl") for _ in range(8)]
    assert statuses == [503] * 8
    assert _status(service, KEY) == 200

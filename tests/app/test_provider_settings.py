"""Settings of an identity provider: whole, and refused in one sentence."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from app.settings import ENV_FILE_VARIABLE, Settings, SettingsError, load_settings, unknown_variables


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = [f"RECOQUEST_{field.upper()}" for field in Settings.model_fields]
    for name in [*unknown_variables(), ENV_FILE_VARIABLE, *settings]:
        monkeypatch.delenv(name, raising=False)


def test_roles_of_groups_are_json(monkeypatch: pytest.MonkeyPatch) -> None:
    written = {"radiology": {"scenes": ["reader", "judge"]}, "it": {"*": ["admin"]}}
    monkeypatch.setenv("RECOQUEST_OIDC_ROLES", json.dumps(written))
    assert load_settings().oidc_roles == {
        "radiology": {"scenes": {"reader", "judge"}},
        "it": {"*": {"admin"}},
    }


@pytest.mark.parametrize(
    "wrong", ["", "[]", "{", '{"it": "admin"}', '{"it": {"*": "admin"}}', '{"it": {"*": ["owner"]}}']
)
def test_other_roles_are_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    monkeypatch.setenv("RECOQUEST_OIDC_ROLES", wrong)
    with pytest.raises(SettingsError, match=r"RECOQUEST_OIDC_ROLES: .*(JSON|roles)"):
        load_settings()


@pytest.mark.parametrize(
    ("issuer", "audience", "said"),
    [
        ("http://login.example.org", "recoquest", "https"),
        ("login.example.org", "recoquest", "https"),
        ("https://me@login.example.org", "recoquest", "https"),
        ("https://login.example.org?x=1", "recoquest", "https"),
        ("https://login.example.org", None, "RECOQUEST_OIDC_AUDIENCE"),
    ],
)
def test_a_provider_is_safe_and_whole(issuer: str, audience: str | None, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        load_settings(oidc_issuer=issuer, oidc_audience=audience)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"oidc_client_id": "page"}, "RECOQUEST_OIDC_CLIENT_ID needs RECOQUEST_OIDC_ISSUER"),
        ({"oidc_client_secret": "hidden"}, "RECOQUEST_OIDC_CLIENT_SECRET needs RECOQUEST_OIDC_CLIENT_ID"),
        *(
            ({"public_url": url}, "RECOQUEST_PUBLIC_URL: .* is not an address")
            for url in (
                "images.example.org", "ftp://images.example.org", "https://me@images.example.org",
                "https://images.example.org/?x=1", "https://images.example.org/#x",
                "https://images.example.org/a//b", "https://images.example.org/../a",
            )
        ),
    ],
)  # fmt: skip
def test_a_client_at_the_provider_is_whole(given: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=said) as refused:
        load_settings(**given)
    assert "hidden" not in str(refused.value)


def test_the_page_alone_needs_no_audience() -> None:
    settings = load_settings(
        oidc_issuer="https://login.example.org", oidc_client_id="page", public_url="https://a.org/images/"
    )
    assert (settings.oidc_audience, settings.public_url) == (None, "https://a.org/images")


def test_the_clients_secret_is_read_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_text("from a file\n")
    monkeypatch.setenv("RECOQUEST_OIDC_CLIENT_SECRET_FILE", os.fspath(tmp_path / "secret"))
    settings = load_settings(oidc_issuer="https://login.example.org", oidc_client_id="page")
    assert settings.oidc_client_secret is not None
    assert settings.oidc_client_secret.get_secret_value() == "from a file"


@pytest.mark.parametrize(
    "issuer", ["https://login.example.org/realms/x", "http://127.0.0.1:9000", "http://localhost:1"]
)
def test_a_provider_on_this_machine_needs_no_tls(issuer: str) -> None:
    assert load_settings(oidc_issuer=issuer, oidc_audience="recoquest").oidc_issuer == issuer

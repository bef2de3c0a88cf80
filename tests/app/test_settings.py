"""Settings: sources in order, unknown names refused, nothing secret printed."""

import json
from pathlib import Path

import pytest

from app.settings import Settings, SettingsError, load_settings, unknown_variables


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in unknown_variables() + [f"RECOQUEST_{field.upper()}" for field in Settings.model_fields]:
        monkeypatch.delenv(name, raising=False)


def test_arguments_win_over_the_environment_and_that_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env_file = tmp_path / "settings.env"
    env_file.write_text("RECOQUEST_PORT=1\nRECOQUEST_HOST=a\nRECOQUEST_DEVICE=cpu\n")
    monkeypatch.setenv("RECOQUEST_PORT", "2")
    monkeypatch.setenv("RECOQUEST_HOST", "b")
    settings = load_settings(env_file, port=3, host=None)
    assert (settings.port, settings.host, settings.device) == (3, "b", "cpu")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("RECOQUEST_PROT=8000", "RECOQUEST_PROT is not a setting"),
        ("RECOQUEST_PORT=99999", "RECOQUEST_PORT: Input should be less than or equal to 65535"),
        ("RECOQUEST_CORS_ORIGINS=https://a.org;https://b.org", "is not an origin"),
    ],
)
def test_a_wrong_line_of_the_file_is_named(tmp_path: Path, line: str, said: str) -> None:
    env_file = tmp_path / "settings.env"
    env_file.write_text(f"{line}\n")
    with pytest.raises(SettingsError, match=said):
        load_settings(env_file)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="does not exist"):
        load_settings(tmp_path / "none.env")


def test_origins_are_separated_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOQUEST_CORS_ORIGINS", "https://a.org, https://b.org:8443,")
    assert load_settings().cors_origins == ("https://a.org", "https://b.org:8443")


def test_a_slip_in_a_variables_name_is_found() -> None:
    names = {"RECOQUEST_PROT": "1", "RECOQUEST_PORT": "1", "PATH": "/bin"}
    assert unknown_variables(names) == ["RECOQUEST_PROT"]


def test_the_catalogue_is_in_the_home_folder_unless_a_url_is_given(tmp_path: Path) -> None:
    assert Settings(home=tmp_path).catalogue_url == f"sqlite:///{tmp_path}/catalogue.sqlite3"
    assert Settings(database_url="postgresql://db/x").catalogue_url == "postgresql://db/x"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:secret@db:5432/x", "postgresql://me:***@db:5432/x"),
        ("postgresql://me:p@ss@db/x", "postgresql://me:***@db/x"),
        ("sqlite:///data/c.sqlite3", "sqlite:///data/c.sqlite3"),
    ],
)
def test_printed_settings_hold_no_password(url: str, shown: str) -> None:
    assert Settings(database_url=url).printable()["database_url"] == shown


def test_the_admin_key_is_long_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOQUEST_ADMIN_KEY", "a-very-secret-key")
    settings = load_settings()
    assert settings.admin_key is not None
    assert settings.admin_key.get_secret_value() == "a-very-secret-key"
    assert "very-secret" not in f"{settings} {settings!r} {json.dumps(settings.printable())}"
    monkeypatch.setenv("RECOQUEST_ADMIN_KEY", "short-and-secret"[:15])
    with pytest.raises(SettingsError, match="RECOQUEST_ADMIN_KEY") as refused:
        load_settings()
    assert "short-and" not in str(refused.value)

"""Secrets in files: read, and refused in one sentence where they are not whole."""

import os
from pathlib import Path

import pytest

from app.settings import (
    ENV_FILE_VARIABLE,
    SecretFileError,
    Settings,
    SettingsError,
    load_settings,
    unknown_variables,
)


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = [f"RECOQUEST_{field.upper()}" for field in Settings.model_fields]
    for name in [*unknown_variables(), ENV_FILE_VARIABLE, *settings]:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("name", ["admin_key", "database_url", "audit_key"])
@pytest.mark.parametrize("in_file", [False, True])
def test_a_secret_may_be_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, in_file: bool
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("sqlite:////very/secret value\n")
    line = f"RECOQUEST_{name.upper()}_FILE"
    env_file = None
    if in_file:
        env_file = tmp_path / "settings.env"
        env_file.write_text(f"{line}={secret}\n")
    else:
        monkeypatch.setenv(line, str(secret))
    found = getattr(load_settings(env_file), name)
    assert unknown_variables() == []
    assert (found if isinstance(found, str) else found.get_secret_value()) == "sqlite:////very/secret value"
    given = load_settings(env_file).environment_of_a_job({line: str(secret)})
    assert line not in given
    assert ("sqlite:////very/secret value" in given.values()) == (name != "admin_key")


def test_a_secrets_file_that_cannot_be_read_or_is_given_twice_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECOQUEST_ADMIN_KEY_FILE", str(tmp_path / "none"))
    with pytest.raises(SecretFileError, match=r"RECOQUEST_ADMIN_KEY_FILE names .*none, which cannot be read"):
        load_settings()
    (tmp_path / "none").write_bytes(b"\xff\xfe")
    with pytest.raises(SecretFileError, match="holds no secret"):
        load_settings()
    (tmp_path / "none").write_text("short")
    with pytest.raises(SettingsError, match=r"RECOQUEST_ADMIN_KEY: .*16"):
        load_settings()
    (tmp_path / "none").write_text("long-enough-for-a-key")
    monkeypatch.setenv("RECOQUEST_ADMIN_KEY", "another-long-enough-key")
    with pytest.raises(SecretFileError, match="RECOQUEST_ADMIN_KEY or RECOQUEST_ADMIN_KEY_FILE"):
        load_settings()


@pytest.mark.parametrize("content", [b"", b"\n", b" \t\r\n", b"\n\n"])
def test_a_secrets_file_with_nothing_in_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    (tmp_path / "secret").write_bytes(content)
    for name in ("ADMIN_KEY", "DATABASE_URL", "AUDIT_KEY"):
        monkeypatch.setenv(f"RECOQUEST_{name}_FILE", str(tmp_path / "secret"))
        with pytest.raises(SecretFileError, match=rf"RECOQUEST_{name}_FILE names .*secret, which is empty"):
            load_settings()
        monkeypatch.delenv(f"RECOQUEST_{name}_FILE")


def test_a_secrets_file_that_is_no_small_readable_file_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECOQUEST_ADMIN_KEY_FILE", str(tmp_path))
    with pytest.raises(SecretFileError, match=r"cannot be read: Is a directory\.$"):
        load_settings()
    monkeypatch.setenv("RECOQUEST_ADMIN_KEY_FILE", "/dev/zero")
    with pytest.raises(SecretFileError, match=r"/dev/zero, which has more than 65,536 bytes\.$"):
        load_settings()
    (tmp_path / "closed").write_text("long-enough-for-a-key")
    (tmp_path / "closed").chmod(0)
    monkeypatch.setenv("RECOQUEST_ADMIN_KEY_FILE", str(tmp_path / "closed"))
    if os.access(tmp_path / "closed", os.R_OK):
        pytest.skip("The superuser reads every file.")
    with pytest.raises(SecretFileError, match=r"cannot be read: Permission denied\.$"):
        load_settings()


@pytest.mark.parametrize("file_in", ["environment", "settings file"])
@pytest.mark.parametrize("value_in", ["environment", "settings file"])
def test_a_secret_that_is_given_with_its_file_is_refused_wherever_both_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file_in: str, value_in: str
) -> None:
    (tmp_path / "secret").write_text("from-a-file-of-its-own")
    places = {
        "RECOQUEST_ADMIN_KEY_FILE": (file_in, str(tmp_path / "secret")),
        "RECOQUEST_ADMIN_KEY": (value_in, "from-a-variable-here"),
    }
    lines = []
    for name, (place, value) in places.items():
        if place == "environment":
            monkeypatch.setenv(name, value)
        else:
            lines.append(f"{name}={value}\n")
    env_file = tmp_path / "settings.env"
    env_file.write_text("".join(lines))
    with pytest.raises(SecretFileError, match="Give RECOQUEST_ADMIN_KEY or RECOQUEST_ADMIN_KEY_FILE, not"):
        load_settings(env_file)


def test_the_environments_file_wins_over_that_of_the_settings_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text("from-the-environment")
    env_file = tmp_path / "settings.env"
    env_file.write_text(f"RECOQUEST_ADMIN_KEY_FILE={tmp_path / 'none'}\n")
    monkeypatch.setenv("RECOQUEST_ADMIN_KEY_FILE", str(tmp_path / "secret"))
    key = load_settings(env_file).admin_key
    assert key is not None
    assert key.get_secret_value() == "from-the-environment"

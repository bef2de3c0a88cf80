"""Settings: sources in order, unknown names refused, nothing secret printed."""

import json
import os
from pathlib import Path
from typing import Any, Final, get_args

import pytest
from pydantic import SecretStr, ValidationError
from pydantic.fields import FieldInfo
from typer.testing import CliRunner

from app.cli.main import build
from app.settings import ENV_FILE_VARIABLE, Settings, SettingsError, load_settings, unknown_variables
from index.catalogue.database import Catalogue
from tests.needed import needed_module
from training.common.progress import PROGRESS_VARIABLE

# Non-default values of settings for which `_other` has none, or whose value matters to others.
GIVEN: Final[dict[str, Any]] = {
    "viewer_url": "/viewer?StudyInstanceUIDs={study}",
    "pacs_url": "https://pacs.example.org/dicom-web",
    "pacs_user": "recoquest",
    "pacs_password": "a password of the archive",
    "pacs_token": "a token of the archive",
    "pacs_sync": "films --modality DX",
    "pacs_sync_at": "*/10 * * * *",
    "pacs_write_back": ("capture", "selection"),
    "database_url": "sqlite:///kept/catalogue.sqlite3",
    "host": "0.0.0.0",
    "device": "cuda:1",
    "threads": 3,
    "admin_key": "a-very-secret-key",
    "traces_url": "http://collector:4318/v1/traces",
    "oidc_issuer": "https://login.example.org",
    "oidc_audience": "recoquest",
    "oidc_client_id": "page",
    "oidc_client_secret": "the client's own secret",
    "public_url": "https://images.example.org/search",
    "oidc_groups_claim": "realm_access.roles",
    "oidc_roles": {"it": {"*": ["admin"]}},
    "audit_queries": "hash",
    "audit_key": "another-secret-key",
    "backup_passphrase": "a passphrase of some words",
    "encode_deadline_s": 1e-7,
    "keep_jobs_days": 0,
    "retrain": ("scenes", "cxr"),
    "retrain_at": "0 3 * * 0",
    "retrain_feedback": 15,
    "allowed_hosts": ("images.example.org", ".b.org"),
    "cors_origins": ("https://a.org", "https://b.org"),
    "frame_ancestors": ("https://c.org",),
    "hidden_fields": ("age", "sex"),
    "log_level": "error",
}


def _other(name: str, field: FieldInfo) -> Any:
    """A value that is not the default: of a flag the opposite, a higher number, or a relative path."""
    if isinstance(field.default, bool):
        return not field.default
    if isinstance(field.default, int | float):
        return field.default + 1
    if Path in (field.annotation, *get_args(field.annotation)):
        return f"kept/{name}"
    raise AssertionError(f"{name}: add a value to GIVEN.")


# Every setting with a value that is not its default, but for one that settings of an archive need.
OTHERS: Final[dict[str, Any]] = {
    name: GIVEN[name] if name in GIVEN else _other(name, field)
    for name, field in Settings.model_fields.items()
    if name != "radiology"
}


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = [f"RECOQUEST_{field.upper()}" for field in Settings.model_fields]
    for name in [*unknown_variables(), ENV_FILE_VARIABLE, *settings]:
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


def test_a_wrong_line_of_the_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    env_file = tmp_path / "settings.env"
    for line, expected in (
        ("RECOQUEST_PROT=8000", r"^The settings cannot be used: RECOQUEST_PROT is not a setting\.$"),
        ("RECOQUEST_AUDIT_KEY=short", r": RECOQUEST_AUDIT_KEY: at least 16 letters are needed\.$"),
        ("RECOQUEST_PORT=99999", "RECOQUEST_PORT: Input should be less than or equal to 65535"),
        ("RECOQUEST_CORS_ORIGINS=https://a.org;https://b.org", "is not an origin"),
    ):
        env_file.write_text(f"{line}\n")
        with pytest.raises(SettingsError, match=expected):
            load_settings(env_file)


def test_the_file_may_be_named_by_a_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given, named = tmp_path / "given.env", tmp_path / "named.env"
    given.write_text("RECOQUEST_PORT=1\n")
    named.write_text("RECOQUEST_PORT=2\nRECOQUEST_HOST=b\n")
    monkeypatch.setenv(ENV_FILE_VARIABLE, str(named))
    assert (load_settings().port, load_settings().host) == (2, "b")
    chosen = load_settings(given)
    assert (chosen.port, chosen.host) == (1, Settings.model_fields["host"].default)
    monkeypatch.setenv(PROGRESS_VARIABLE, "progress.json")
    assert unknown_variables() == []
    monkeypatch.setenv(ENV_FILE_VARIABLE, "")
    assert load_settings().port == Settings.model_fields["port"].default
    with pytest.raises(SettingsError, match="does not exist"):
        load_settings(tmp_path / "none.env")
    monkeypatch.setenv(ENV_FILE_VARIABLE, str(tmp_path / "gone.env"))
    with pytest.raises(SettingsError, match=r"gone\.env does not exist"):
        load_settings()


def test_origins_are_separated_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOQUEST_CORS_ORIGINS", "https://a.org, https://b.org:8443,")
    assert load_settings().cors_origins == ("https://a.org", "https://b.org:8443")


def test_the_catalogue_is_in_the_home_folder_unless_a_url_is_given(tmp_path: Path) -> None:
    assert Settings(home=tmp_path).catalogue_url == f"sqlite:///{tmp_path}/catalogue.sqlite3"
    assert Settings(database_url="postgresql://db/x").catalogue_url == "postgresql://db/x"


def test_printed_settings_and_sentences_hold_no_password() -> None:
    for url, shown in (
        ("postgresql://me:secret@db:5432/x", "postgresql://me:***@db:5432/x"),
        ("postgresql://me:p@ss@db/x", "postgresql://me:***@db/x"),
        ("postgresql://me:p?s@db/x?sslmode=require", "postgresql://me:***@db/x?sslmode=require"),
        (
            "postgresql://db/x?user=me&password=se@cret&port=1",
            "postgresql://db/x?user=me&password=***&port=1",
        ),
        ("postgresql://db/x?SSLP%61ssword=secret", "postgresql://db/x?SSLP%61ssword=***"),
        ("postgresql:///x?password=secret", "postgresql:///x?password=***"),
        ("sqlite:///data@home:1/c.sqlite3", "sqlite:///data@home:1/c.sqlite3"),
    ):
        assert Settings(database_url=url).printable()["database_url"] == shown
    needed_module("psycopg", "`pip install psycopg[binary]`")
    catalogue = Catalogue("postgresql+psycopg://me:se%40cret@db/x?password=se@cret&port=1")
    assert catalogue.url == "postgresql+psycopg://me:***@db/x?password=***&port=1"
    catalogue.close()


def test_settings_are_printed_as_they_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "recoquest.env"
    file.write_text(
        "RECOQUEST_ADMIN_KEY=a-very-secret-key\nRECOQUEST_RETRAIN=a, b\n"
        "RECOQUEST_DATABASE_URL=postgresql://me:secret@db/x?password=secret\n"
    )
    monkeypatch.setenv("RECOQUEST_PORT", "8123")
    printed = CliRunner().invoke(build(), ["settings", "--env-file", str(file)])
    lines = printed.output.splitlines()
    assert len(lines) == len(Settings.model_fields)
    assert "secret" not in printed.output
    assert {
        "RECOQUEST_PORT=8123",
        "RECOQUEST_RETRAIN=a,b",
        "RECOQUEST_DATABASE_URL=postgresql://me:***@db/x?password=***",
        "RECOQUEST_HOME=recoquest-data  # default",
        "RECOQUEST_THREADS=  # default",
        "RECOQUEST_ADMIN_KEY=**********",
        "RECOQUEST_OIDC_ROLES={}  # default",
    } <= set(lines)
    as_json = CliRunner().invoke(build(), ["settings", "--env-file", str(file), "--json"]).output
    assert json.loads(as_json) == load_settings(file).printable()
    assert "secret" not in as_json.replace("oidc_client_secret", "")


def _shown(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()


def test_the_admin_key_is_long_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOQUEST_ADMIN_KEY", "a-very-secret-key")
    settings = load_settings()
    assert _shown(settings.admin_key) == "a-very-secret-key"
    assert "very-secret" not in f"{settings} {settings!r} {json.dumps(settings.printable())}"
    monkeypatch.setenv("RECOQUEST_ADMIN_KEY", "short-and-secret"[:15])
    with pytest.raises(SettingsError, match="RECOQUEST_ADMIN_KEY") as refused:
        load_settings()
    assert "short-and" not in str(refused.value)


def test_a_job_has_every_setting_of_its_worker_but_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, elsewhere = tmp_path / "worker", tmp_path / "elsewhere"
    worker.mkdir()
    elsewhere.mkdir()
    monkeypatch.chdir(worker)
    assert GIVEN.keys() <= OTHERS.keys()
    assert Settings(radiology=False).environment_of_a_job({})["RECOQUEST_RADIOLOGY"] == "False"
    settings = Settings(**OTHERS)
    fields = Settings.model_fields.items()
    assert [name for name, field in fields if getattr(settings, name) == field.default] == ["radiology"]
    around = {
        "PATH": "/bin",
        "recoquest_home": "other",
        "RECOQUEST_ADMIN_KEY": "a-very-secret-key",
        ENV_FILE_VARIABLE: "worker.env",
    }
    given = settings.environment_of_a_job(around)
    assert "a-very-secret-key" not in given.values()
    assert not {"recoquest_home", ENV_FILE_VARIABLE} & given.keys()
    assert given["PATH"] == "/bin"
    monkeypatch.chdir(elsewhere)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    dumped = settings.model_dump().items()
    expected: dict[str, Any] = {
        **{name: worker / value if isinstance(value, Path) else value for name, value in dumped},
        "database_url": f"sqlite:///{worker}/kept/catalogue.sqlite3",
        # Settings of callers, of whom a job has none.
        **dict.fromkeys(("admin_key", "backup_passphrase", "public_url")),
        **dict.fromkeys(("oidc_issuer", "oidc_audience", "oidc_client_id", "oidc_client_secret")),
        "oidc_groups_claim": "groups",
        "oidc_roles": {},
    }
    assert load_settings().model_dump() == expected


def test_a_job_of_a_worker_without_settings_has_none_but_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = Settings().environment_of_a_job({})
    assert given == {"RECOQUEST_HOME": os.fspath(tmp_path / "recoquest-data")}
    password = "postgresql+psycopg://me:p%40ss@db/x?sslmode=require"
    given = Settings(database_url=password).environment_of_a_job({})
    assert given["RECOQUEST_DATABASE_URL"] == password


def test_the_address_of_a_viewer_is_a_template() -> None:
    for template in (
        "/viewer?StudyInstanceUIDs={study}", "https://pacs.example.org/v?s={study}&e={series}&i={sop}",
    ):  # fmt: skip
        assert Settings(viewer_url=template).viewer_url == template
    for template in (
        *("/viewer", "/viewer?s={study", "/v?s={study}&p={patient}", "/v?s={study!r}", "/v?s={study:>9}"),
        *("//x/{study}", "javascript:{study}", "/v?s={}"),
    ):
        with pytest.raises(ValidationError, match="viewer"):
            Settings(viewer_url=template)


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
    result = getattr(load_settings(env_file), name)
    for other in ("RECOQUEST_TEST_URL", "RECOQUEST_DEBUG", "RECOQUEST_PROT", "RECOQUEST_A"):
        monkeypatch.setenv(other, "1")
    assert unknown_variables() == ["RECOQUEST_A", "RECOQUEST_PROT"]
    assert (
        result if isinstance(result, str) else result.get_secret_value()
    ) == "sqlite:////very/secret value"
    given = load_settings(env_file).environment_of_a_job({line: str(secret)})
    assert line not in given
    assert ("sqlite:////very/secret value" in given.values()) == (name != "admin_key")


@pytest.mark.parametrize("name", ["ADMIN_KEY", "DATABASE_URL", "AUDIT_KEY"])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"which cannot be read: No such file or directory\.$"),
        (b"\xff\xfe", "which holds no secret"),
        *((blank, "which is empty") for blank in (b"", b"\n", b" \t\r\n", b"\n\n")),
        (b"x" * 65_537, r"which has more than 65,536 bytes\.$"),
    ],
)
def test_a_secrets_file_that_holds_none_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: bytes | None, message: str
) -> None:
    monkeypatch.setenv(f"RECOQUEST_{name}_FILE", str(tmp_path / "secret"))
    if content is not None:
        (tmp_path / "secret").write_bytes(content)
    with pytest.raises(SettingsError, match=rf"RECOQUEST_{name}_FILE names .*secret, {message}"):
        load_settings()


def test_a_secrets_file_that_is_none_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed, short = tmp_path / "closed", tmp_path / "short"
    closed.write_text("long-enough-for-a-key")
    closed.chmod(0)
    # It is judged as any other secret.
    short.write_text("short")
    for path, error, expected in (
        (tmp_path, SettingsError, r"cannot be read: Is a directory\.$"),
        (closed, SettingsError, r"cannot be read: Permission denied\.$"),
        ("/dev/zero", SettingsError, r"/dev/zero, which has more than 65,536 bytes\.$"),
        (short, SettingsError, r"RECOQUEST_ADMIN_KEY: .*16"),
    ):
        monkeypatch.setenv("RECOQUEST_ADMIN_KEY_FILE", str(path))
        # The superuser reads every file.
        if path != closed or not os.access(path, os.R_OK):
            with pytest.raises(error, match=expected):
                load_settings()


@pytest.mark.parametrize("file_in", ["environment", "settings file"])
@pytest.mark.parametrize("value_in", ["environment", "settings file"])
def test_a_secret_that_is_given_with_its_file_is_refused_wherever_both_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file_in: str, value_in: str
) -> None:
    secret, env_file = tmp_path / "secret", tmp_path / "settings.env"
    secret.write_text("from-a-file-of-its-own")
    lines = []
    for name, source, value in (
        ("RECOQUEST_ADMIN_KEY_FILE", file_in, str(secret)),
        ("RECOQUEST_ADMIN_KEY", value_in, "from-a-variable-here"),
    ):
        if source == "environment":
            monkeypatch.setenv(name, value)
        else:
            lines.append(f"{name}={value}\n")
    env_file.write_text("".join(lines))
    with pytest.raises(SettingsError, match="Give RECOQUEST_ADMIN_KEY or RECOQUEST_ADMIN_KEY_FILE, not"):
        load_settings(env_file)
    # The environment's file wins over that of the settings file.
    monkeypatch.delenv("RECOQUEST_ADMIN_KEY", raising=False)
    env_file.write_text(f"RECOQUEST_ADMIN_KEY_FILE={tmp_path / 'none'}\n")
    monkeypatch.setenv("RECOQUEST_ADMIN_KEY_FILE", str(secret))
    assert _shown(load_settings(env_file).admin_key) == "from-a-file-of-its-own"


def test_roles_of_groups_are_json(monkeypatch: pytest.MonkeyPatch) -> None:
    written = {"radiology": {"scenes": ["reader", "judge"]}, "it": {"*": ["admin"]}}
    monkeypatch.setenv("RECOQUEST_OIDC_ROLES", json.dumps(written))
    assert load_settings().oidc_roles == {
        group: {name: set(roles) for name, roles in of.items()} for group, of in written.items()
    }
    for wrong in ("", "[]", "{", '{"it": "admin"}', '{"it": {"*": "admin"}}', '{"it": {"*": ["owner"]}}'):
        monkeypatch.setenv("RECOQUEST_OIDC_ROLES", wrong)
        with pytest.raises(SettingsError, match=r"RECOQUEST_OIDC_ROLES: .*(JSON|roles)"):
            load_settings()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        *(
            ({"oidc_issuer": issuer, "oidc_audience": "recoquest"}, "https")
            for issuer in (
                "http://login.example.org", "login.example.org", "https://me@login.example.org",
                "https://login.example.org?x=1", "https://login.example.org#x", "https://", "https://[a",
                "ftp://localhost", "http://10.0.0.1", "http://a.localhost",
            )
        ),
        ({"oidc_issuer": "https://login.example.org"}, "RECOQUEST_OIDC_AUDIENCE"),
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
def test_a_provider_and_its_client_are_safe_and_whole(given: dict[str, Any], expected: str) -> None:
    with pytest.raises(SettingsError, match=expected) as refused:
        load_settings(**given)
    assert "hidden" not in str(refused.value)


def test_a_provider_on_this_machine_needs_no_tls_and_the_page_alone_no_audience(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = ("http://127.9.9.9", "http://[::1]:9", "http://localhost")
    for issuer in ("https://login.example.org/realms/x", *local):
        assert load_settings(oidc_issuer=issuer, oidc_audience="recoquest").oidc_issuer == issuer
    page: dict[str, Any] = {"oidc_issuer": "https://login.example.org", "oidc_client_id": "page"}
    settings = load_settings(**page, public_url="https://a.org/images/")
    assert (settings.oidc_audience, settings.public_url) == (None, "https://a.org/images")
    # Its secret may be in a file.
    (tmp_path / "secret").write_text("from a file\n")
    monkeypatch.setenv("RECOQUEST_OIDC_CLIENT_SECRET_FILE", os.fspath(tmp_path / "secret"))
    assert _shown(load_settings(**page).oidc_client_secret) == "from a file"


# Bounds of numbers, and least lengths of texts.
BOUNDS: Final = {
    "ge=1": "concurrent_decodes encode_batch_size encode_queue_size job_lease_s keep_generations "
    "max_image_bytes max_image_pixels max_text_length retrain_feedback threads",
    "ge=0": "encode_batch_wait_ms job_stop_s keep_jobs_days keep_waiting_reports_days max_feedback port "
    "readiness_cache_s train_processes",
    "gt=0": "database_timeout_s encode_deadline_s readiness_timeout_s refresh_s",
    "ge=1024": "max_bodies_bytes max_body_bytes max_json_bytes", "ge=33554432": "decode_memory_bytes",
    "ge=8": "max_connections", "ge=2": "max_filter_length", "le=65535": "port",
    "le=1000": "encode_batch_wait_ms", "min_length=16": "admin_key audit_key",
    "min_length=12": "backup_passphrase",
    "min_length=1": "oidc_client_id oidc_client_secret oidc_groups_claim pacs_token pacs_user",
}  # fmt: skip


def test_numbers_and_secrets_have_their_bounds() -> None:
    results: dict[str, list[str]] = {}
    for name, field in Settings.model_fields.items():
        for one in field.metadata:
            for kind in ("ge", "gt", "le", "min_length"):
                if hasattr(one, kind):
                    results.setdefault(f"{kind}={getattr(one, kind)}", []).append(name)
    assert {bound: " ".join(sorted(names)) for bound, names in results.items()} == BOUNDS

"""`recoquest keys`, and the address that `serve` takes and what it says of keys at its start."""

import json
import socket
from pathlib import Path

import pytest
from pydantic import SecretStr
from typer.testing import CliRunner, Result

from app.cli.main import build
from app.cli.serve import OpenNetworkError, PortError, bind, refuse_open_network, url_of
from app.settings import Settings
from index.errors import KeyNameError
from index.keys.api_keys import ROLES
from tests.app.conftest import COLLECTION, Indexed


def _keys(home: Path, *arguments: str) -> Result:
    return CliRunner().invoke(build(), ["keys", *arguments, "--home", str(home)])


def test_a_key_is_made_listed_rotated_and_revoked(tmp_path: Path) -> None:
    made = _keys(tmp_path, "create", "viewer", "--role", "reader", "--role", "judge", "--collection", "a")
    assert made.exit_code == 0, made.output
    key = made.stdout.strip()
    assert "'a'" in made.stderr
    second = _keys(tmp_path, "rotate", "viewer").stdout.strip()
    assert isinstance(_keys(tmp_path, "rotate", "viewer").exception, KeyNameError)
    assert _keys(tmp_path, "revoke", key.split("_")[1]).exit_code == 0
    listed = _keys(tmp_path, "list", "--json").stdout
    assert [(one["id"], one["state"], one["grants"]) for one in json.loads(listed)] == [
        (key.split("_")[1], "revoked", {"a": ["reader", "judge"]}),
        (second.split("_")[1], "live", {"a": ["reader", "judge"]}),
    ]
    exported = tmp_path / "trail.ndjson"
    CliRunner().invoke(build(), ["audit", "export", str(exported), "--home", str(tmp_path)])
    trail = exported.read_text()
    events = [json.loads(line) for line in trail.splitlines()]
    assert [(one["action"], one["details"]["key"]) for one in events if "key" in one["details"]] == [
        ("create", key.split("_")[1]),
        ("create", second.split("_")[1]),
        ("delete", key.split("_")[1]),
    ]
    assert key.split("_", 2)[2] not in trail
    assert key.split("_", 2)[2] not in listed + _keys(tmp_path, "list").output


def test_an_auditor_of_one_collection_is_refused(tmp_path: Path) -> None:
    refused = _keys(tmp_path, "create", "a", "--role", "auditor", "--collection", "scenes")
    assert refused.exit_code == 2
    assert "audit trail" in refused.output
    assert _keys(tmp_path, "create", "a", "--role", "auditor").exit_code == 0


def test_a_name_that_no_collection_can_have_is_refused(tmp_path: Path) -> None:
    for name in ("no such", "~1", "", "a/b", "x" * 101):
        refused = _keys(tmp_path, "create", "a", "--role", "reader", "--collection", name)
        assert refused.exit_code == 2
        assert "cannot name a collection" in " ".join(refused.output.replace("│", " ").split())
    assert json.loads(_keys(tmp_path, "list", "--json").stdout) == []
    assert _keys(tmp_path, "create", "a", "--role", "reader", "--collection", "*").stderr.count("\n") == 1


def test_a_key_for_an_alias_is_made_with_a_warning(own: Indexed) -> None:
    home = own.settings.home
    CliRunner().invoke(build(), ["aliases", "set", "current", COLLECTION, "--home", str(home)])
    made = _keys(home, "create", "a", "--role", "reader", "--collection", "current")
    assert made.exit_code == 0
    assert f"'current' is an alias of {COLLECTION!r}" in made.stderr
    assert f"--collection {COLLECTION}" in made.stderr
    quiet = _keys(home, "create", "b", "--role", "reader", "--collection", COLLECTION)
    assert "collection" not in quiet.stderr


def test_an_unknown_role_is_refused(tmp_path: Path) -> None:
    refused = _keys(tmp_path, "create", "viewer", "--role", "owner")
    assert refused.exit_code == 2
    assert all(role in refused.output for role in ROLES)


@pytest.mark.parametrize(
    ("address", "refused", "settings"),
    [
        ("127.0.0.1", False, {"open_reading": True}),
        ("0.0.0.0", True, {"open_reading": True}),
        ("0.0.0.0", False, {"open_reading": True, "open_network": True}),
        ("0.0.0.0", False, {"admin_key": SecretStr("x" * 16)}),
        ("0.0.0.0", False, {"open_feedback": True}),
    ],
)
def test_open_reading_stays_on_this_machine(address: str, refused: bool, settings: dict[str, object]) -> None:
    with socket.socket() as taken:
        taken.bind((address, 0))
        if refused:
            with pytest.raises(OpenNetworkError, match="RECOQUEST_OPEN_NETWORK"):
                refuse_open_network(taken, Settings.model_validate(settings))
        else:
            refuse_open_network(taken, Settings.model_validate(settings))


def test_port_0_takes_a_free_one() -> None:
    with bind("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        assert url_of(taken) == f"http://127.0.0.1:{port}"
        assert port > 0


def test_a_port_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(PortError, match=f"Port {port} of 127.0.0.1 .*--port"):
            bind("127.0.0.1", port)


def test_a_port_can_be_taken_again_at_once() -> None:
    with bind("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        first.listen()
        with socket.create_connection(("127.0.0.1", port)) as client:
            first.accept()[0].close()
            client.recv(1)
    bind("127.0.0.1", port).close()


def test_every_address_is_shown_as_this_machine() -> None:
    with bind("0.0.0.0", 0) as taken:
        assert url_of(taken).startswith("http://localhost:")


def test_an_unknown_host_is_named() -> None:
    with pytest.raises(PortError, match=r"'host\.invalid' is not an address"):
        bind("host.invalid", 0)


def test_an_address_that_waits_to_be_served_is_taken_for_others() -> None:
    with bind("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(PortError, match=f"Port {port} of 127.0.0.1 .*--port"):
            bind("127.0.0.1", port)


def test_a_host_that_can_be_no_name_is_named() -> None:
    with pytest.raises(PortError, match="is not an address"):
        bind("x" * 70 + ".example", 0)

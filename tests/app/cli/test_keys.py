"""`recoquest keys`, and the address that `serve` takes and what it says of keys at its start."""

import json
import re
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from pydantic import SecretStr
from typer.testing import Result

from app.cli.serve import bind, refuse_open_network, url_of
from app.settings import Settings
from index.errors import KeyNameError
from index.keys.api_keys import ROLES
from tests.app.commands import run_command, said
from tests.app.conftest import COLLECTION, Indexed
from training.common.errors import RecoquestError


def _keys(home: Path, *arguments: str, code: int = 0) -> Result:
    return run_command("keys", *arguments, home=home, code=code)


def test_a_key_is_made_listed_rotated_and_revoked(tmp_path: Path) -> None:
    made = _keys(tmp_path, "create", "viewer", "--role", "reader", "--role", "judge", "--collection", "a")
    key = made.stdout.strip()
    assert "'a'" in made.stderr
    second = _keys(tmp_path, "rotate", "viewer").stdout.strip()
    assert isinstance(_keys(tmp_path, "rotate", "viewer", code=1).exception, KeyNameError)
    _keys(tmp_path, "revoke", key.split("_")[1])
    listed = _keys(tmp_path, "list", "--json").stdout
    assert [(one["id"], one["state"], one["grants"]) for one in json.loads(listed)] == [
        (key.split("_")[1], "revoked", {"a": ["reader", "judge"]}),
        (second.split("_")[1], "live", {"a": ["reader", "judge"]}),
    ]
    trail = run_command("audit", "export", "-", home=tmp_path).stdout
    events = [json.loads(line) for line in trail.splitlines()]
    assert [(one["action"], one["details"]["key"]) for one in events if "key" in one["details"]] == [
        ("create", key.split("_")[1]),
        ("create", second.split("_")[1]),
        ("delete", key.split("_")[1]),
    ]
    assert key.split("_", 2)[2] not in trail
    assert key.split("_", 2)[2] not in listed + _keys(tmp_path, "list").output


@pytest.mark.parametrize(
    ("role", "collection", "told"),
    [
        ("auditor", "scenes", ["audit trail"]),
        ("owner", "*", ROLES),
        *(("reader", name, ["cannot name a collection"]) for name in ("no such", "~1", "", "a/b", "x" * 101)),
    ],
)
def test_a_key_that_gives_no_right_is_refused(
    tmp_path: Path, role: str, collection: str, told: Sequence[str]
) -> None:
    refused = said(_keys(tmp_path, "create", "a", "--role", role, "--collection", collection, code=2))
    assert all(word in refused for word in told)
    assert json.loads(_keys(tmp_path, "list", "--json").stdout) == []


def test_a_key_of_all_collections_is_made_without_a_warning(tmp_path: Path) -> None:
    for role in ("auditor", "reader"):
        made = _keys(tmp_path, "create", role, "--role", role, "--collection", "*")
        assert made.stderr.count("\n") == 1


def test_a_key_for_an_alias_is_made_with_a_warning(own: Indexed) -> None:
    home = own.settings.home
    own.run("aliases", "set", "current", COLLECTION)
    made = _keys(home, "create", "a", "--role", "reader", "--collection", "current")
    assert f"'current' is an alias of {COLLECTION!r}" in made.stderr
    assert f"--collection {COLLECTION}" in made.stderr
    quiet = _keys(home, "create", "b", "--role", "reader", "--collection", COLLECTION)
    assert "collection" not in quiet.stderr


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
            with pytest.raises(RecoquestError, match="RECOQUEST_OPEN_NETWORK"):
                refuse_open_network(taken, Settings.model_validate(settings))
        else:
            refuse_open_network(taken, Settings.model_validate(settings))


def test_port_0_takes_a_free_one_and_every_address_is_shown_as_this_machine() -> None:
    with bind("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        assert url_of(taken) == f"http://127.0.0.1:{port}"
        assert port > 0
    with bind("0.0.0.0", 0) as taken:
        assert url_of(taken).startswith("http://localhost:")


@pytest.mark.parametrize(
    "take", [lambda: socket.create_server(("127.0.0.1", 0)), lambda: bind("127.0.0.1", 0)]
)
def test_a_port_that_others_serve_or_are_to_serve_is_named(take: Callable[[], socket.socket]) -> None:
    with take() as other:
        port = other.getsockname()[1]
        with pytest.raises(RecoquestError, match=f"Port {port} of 127.0.0.1 .*--port"):
            bind("127.0.0.1", port)


@pytest.mark.parametrize("host", ["host.invalid", "x" * 70 + ".example"])
def test_a_host_that_is_none_is_named(host: str) -> None:
    with pytest.raises(RecoquestError, match=rf"'{re.escape(host)}' is not an address"):
        bind(host, 0)


def test_a_port_can_be_taken_again_at_once() -> None:
    with bind("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        first.listen()
        with socket.create_connection(("127.0.0.1", port)) as client:
            first.accept()[0].close()
            client.recv(1)
    bind("127.0.0.1", port).close()

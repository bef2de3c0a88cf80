"""Two hosts on one machine: network namespaces that a pair of virtual interfaces connects."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_ADDRESSES: Final = ("192.0.2.1", "192.0.2.2")
# Files here are those of /etc for what runs in a namespace.
_ETC: Final = Path("/etc/netns")


@dataclass(frozen=True)
class Host:
    """A host.

    Attributes:
        name: Of its namespace.
        address: On the network of both.
    """

    name: str
    address: str

    def command(self, *words: str) -> list[str]:
        """Return what runs a command on it."""
        return ["ip", "netns", "exec", self.name, *words]

    def run(
        self, *words: str, environment: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> "subprocess.CompletedProcess[str]":
        """Run a command on it to its end."""
        return subprocess.run(
            self.command(*words),
            env={**os.environ, **(environment or {})},
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=120,
        )

    @contextlib.contextmanager
    def running(
        self, *words: str, log: Path, environment: Mapping[str, str], cwd: Path | None = None
    ) -> Iterator["subprocess.Popen[Any]"]:
        """Run a command on it until the block ends."""
        with log.open("w") as output:
            process = subprocess.Popen(
                self.command(*words), env=dict(environment), cwd=cwd, stdout=output, stderr=subprocess.STDOUT
            )
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def can_make_hosts() -> bool:
    """Whether this process may make namespaces."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        return False
    name = f"recoquest-{os.getpid()}-probe"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode == 0
    if made:
        subprocess.run(["ip", "netns", "delete", name], check=True)
    return made


@contextlib.contextmanager
def two_hosts(site: str) -> Iterator[tuple[Host, Host]]:
    """Make a server and a client, which finds the server under the name of the site."""
    server, client = (
        Host(f"recoquest-{os.getpid()}-{number}", address) for number, address in enumerate(_ADDRESSES)
    )
    etc = _ETC / client.name
    etc.mkdir(parents=True)
    (etc / "hosts").write_text(f"127.0.0.1 localhost\n{server.address} {site}\n")
    interface = f"rq{os.getpid()}"
    try:
        for host in (server, client):
            _ip("netns", "add", host.name)
        _ip("link", "add", interface, "netns", server.name, "type", "veth", "peer", "name", interface,
            "netns", client.name)  # fmt: skip
        for host in (server, client):
            _ip("-n", host.name, "address", "add", f"{host.address}/24", "dev", interface)
            for device in ("lo", interface):
                _ip("-n", host.name, "link", "set", device, "up")
        yield server, client
    finally:
        for host in (server, client):
            subprocess.run(["ip", "netns", "delete", host.name], capture_output=True, check=False)
        shutil.rmtree(etc)
        with contextlib.suppress(OSError):
            _ETC.rmdir()


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)

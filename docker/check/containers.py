"""Services of a compose file in bubblewrap, which runs them from an image's files without an engine.

They are confined as the compose file says: read-only but for the volume and what is in memory, as the image's
user, without capabilities or a way to any. They share this machine's network and listen on loopback ports.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Self

# A service of a resolved compose file.
Service = Mapping[str, Any]


class CheckError(Exception):
    """What is wrong with the image or the compose files."""


@dataclass(frozen=True)
class Container:
    """The files of an image, and how it says that they are run.

    Attributes:
        root: Folder of the files.
        user: Numbers of user and group, as in `10001:10001`.
        folder: Where commands run.
        environment: Variables of the image.
        entrypoint: What the image runs.
        default: What the entrypoint is given when the service names no command.
    """

    root: Path
    user: str
    folder: str
    environment: Mapping[str, str]
    entrypoint: Sequence[str]
    default: Sequence[str]

    @classmethod
    def of(cls, root: Path, inspected: str) -> Self:
        """Reads what `buildah inspect` printed of an image."""
        config = json.loads(inspected)["Docker"]["config"]
        environment = dict(each.split("=", 1) for each in config["Env"])
        return cls(
            root, config["User"], config["WorkingDir"], environment, config["Entrypoint"], config["Cmd"]
        )

    def command(self, service: Service, home: Path, port: int, words: Sequence[str]) -> list[str]:
        """Returns what runs `words` as the service would; `home` is its volume, with `secrets` beside it."""
        environment = {**self.environment, **service.get("environment", {}), "RECOQUEST_PORT": str(port)}
        volumes = [volume.partition(":")[2] for volume in service["volumes"]]
        secrets = [
            (home.with_name("secrets") / name, f"/run/secrets/{name}") for name in service.get("secrets", ())
        ]
        memory = ["/dev/shm", *(mount.partition(":")[0] for mount in service["tmpfs"])]
        user, _, group = self.user.partition(":")
        return [
            *("bwrap", "--die-with-parent", "--unshare-pid", "--unshare-ipc", "--clearenv"),
            *("--ro-bind" if service["read_only"] else "--bind", str(self.root), "/"),
            *("--dev", "/dev", "--proc", "/proc"),
            *(word for path in volumes for word in ("--bind", str(home), path)),
            *(word for path in memory for word in ("--perms", "1777", "--tmpfs", path)),
            *(("--tmpfs", "/run", "--perms", "0755", "--dir", "/run/secrets") if secrets else ()),
            *(word for pair in secrets for word in ("--ro-bind", *map(str, pair))),
            *(word for name, value in environment.items() for word in ("--setenv", name, value)),
            # Only what changes the user may do so; it keeps nothing.
            *("--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"),
            *("setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups"),
            *("env", f"--chdir={self.folder}", *words),
        ]

    def run(self, service: Service, home: Path, *words: str) -> str:
        """Does one command of recoquest, as `docker compose run` does, and returns what it printed."""
        command = self.command(service, home, 8000, [*self.entrypoint, *words])
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise CheckError(f"`{' '.join(words)}` ended with {done.returncode}: {done.stderr[-2000:]}")
        return done.stdout

    def passes(self, service: Service, home: Path, port: int) -> bool:
        """Whether the service's health check finds it well."""
        _, *words = service["healthcheck"]["test"]
        command = self.command(service, home, port, words)
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    @contextlib.contextmanager
    def started(self, service: Service, home: Path, port: int) -> "Iterator[Running]":
        """Runs a service until the block ends; SIGTERM must then end it within its grace."""
        words = [*self.entrypoint, *service.get("command", self.default)]
        if "ports" in service:
            words += ["--host", "127.0.0.1"]
        log = home.with_name(f"{home.name}-{words[1]}.log")
        with log.open("w") as output:
            command = self.command(service, home, port, words)
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        running = Running(" ".join(words), process, log, time.monotonic())
        try:
            yield running
            running.stop(int(service["stop_grace_period"].removesuffix("s")))
        finally:
            running.kill()


@dataclass(frozen=True)
class Running:
    """A service that was started."""

    words: str
    process: "subprocess.Popen[bytes]"
    log: Path
    begun: float

    def error(self, what: str) -> CheckError:
        """Returns what was wrong, with the end of the log."""
        return CheckError(f"{self.words}: {what}; its last lines:\n{self.log.read_text()[-2000:]}")

    def wait_until_ready(self, port: int, seconds: float) -> float:
        """Waits until the service is ready and returns the seconds since it was started.

        Raises:
            CheckError: It ended, or was not ready in time.
        """
        while True:
            with contextlib.suppress(OSError):
                if ask(port, "GET", "/readyz")[0] == 200:
                    return time.monotonic() - self.begun
            if self.process.poll() is not None:
                raise self.error("it ended")
            if time.monotonic() - self.begun > seconds:
                raise self.error(f"not ready within {seconds} s")
            time.sleep(0.1)

    def stop(self, seconds: float) -> None:
        """Ends the program in the container as an engine does.

        Raises:
            CheckError: It did not end in time, or with an error.
        """
        program = self._program()
        os.kill(program, signal.SIGTERM)
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise self.error(f"SIGTERM did not stop it in {seconds} s") from None
        # A program may end by the signal itself, its work done.
        if self.process.returncode not in (0, 128 + signal.SIGTERM):
            raise self.error(f"SIGTERM ended it with {self.process.returncode}")

    def kill(self) -> None:
        """Ends whatever still runs."""
        for process in (*_descendants(self.process.pid), self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self.process.wait()

    def _program(self) -> int:
        for process in _descendants(self.process.pid):
            if "python" in Path(f"/proc/{process}/exe").readlink().name:
                return process
        raise self.error("it runs no Python")


def ask(port: int, method: str, path: str, body: object = None, key: str | None = None) -> tuple[int, Any]:
    """Asks a service on a loopback port; returns the status and what its JSON says."""
    headers = {"Content-Type": "application/json"}
    if key is not None:
        headers["Authorization"] = f"Bearer {key}"
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def free_port() -> int:
    """Returns a loopback port that is free."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def _descendants(process: int) -> Iterator[int]:
    found = subprocess.run(["pgrep", "-P", str(process)], capture_output=True, text=True, check=False)
    for child in map(int, found.stdout.split()):
        yield child
        yield from _descendants(child)

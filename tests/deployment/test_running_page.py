"""From nothing to a service with TLS, as docs/operate/runbook.md says: on one host, called from another."""

import configparser
import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from PIL import Image

from tests.deployment.hosts import Host, can_make_hosts, two_hosts
from tests.docker.dockerfile import ROOT
from tests.e2e.work import COMMAND
from tests.index.samples import make_bundle
from tests.needed import needed
from training.samples import write_sample_data

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PAGE: Final = (ROOT / "docs" / "operate" / "runbook.md").read_text("utf-8")
SECTION: Final = PAGE.partition("### Install on Debian with systemd\n")[2].partition("\n### Install with")[0]
SITE: Final = "images.example.org"
UNITS: Final = ROOT / "deploy" / "systemd"
PATIENCE_S: Final = 120
PEOPLE: Final = """
export RECOQUEST_ENV_FILE=/etc/recoquest.env
cd /srv/recoquest
recoquest=/opt/recoquest/bin/recoquest
$recoquest index scenes --bundle bundle --data samples/scenes
$recoquest keys create anna --role reader --collection scenes
$recoquest keys create carla --role curator --collection scenes
$recoquest keys create operator --role admin
"""
PROGRAM: Final = """
from recoquest_client import AccessError, Client, NewImage

with Client("https://images.example.org") as client:
    print("found", [hit.id for hit in client.search("scenes", "two dogs").hits])
    try:
        done = client.upload("scenes", [NewImage("ward-1", "dog.png", {"texts": ["a dog"]})])
        print("written", done.written)
    except AccessError as refused:
        print("refused", refused.detail)
"""


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", SECTION, re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Deployment:
    """All that runs, and where it is called from.

    Attributes:
        client: The host that calls.
        folder: Where the client's files are, the authority's certificate among them.
        log: Of the proxy.
        keys: The keys of the two people, by variable.
    """

    client: Host
    folder: Path
    log: Path
    keys: dict[str, str]

    def curl(self, *words: str, status: int = 0) -> str:
        """What curl prints; `status` is another exit status that is accepted."""
        done = self.client.run(
            "curl", "--silent", "--show-error", "--cacert", "root.crt", *words, cwd=self.folder
        )
        assert done.returncode in (0, status), done.stderr
        return done.stdout

    def bearer(self, name: str) -> tuple[str, str]:
        return "--header", f"Authorization: Bearer {self.keys[name]}"


@dataclass(frozen=True)
class Machine:
    """A root folder that stands for that of the new machine."""

    root: Path

    def local(self, text: str) -> str:
        """A text of the page, or a unit, with its paths on this machine."""
        text = text.replace("/opt/recoquest/bin/recoquest", str(self.root / "recoquest"))
        text = text.replace("runuser -u recoquest -- ", "")
        return re.sub(r"(?<![\w/.-])/(etc|srv|var)/", rf"{self.root}/\1/", text)

    def sh(self, script: str) -> str:
        done = subprocess.run(
            ["sh", "-e"], input=self.local(script), cwd=ROOT, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def unit(self, name: str) -> tuple[list[str], dict[str, str]]:
        """The command that a unit starts, and with which variables."""
        found = configparser.RawConfigParser()
        found.optionxform = str  # type: ignore[assignment, method-assign]
        found.read_string(self.local((self.root / "etc/systemd/system" / name).read_text("utf-8")))
        service = found["Service"]
        lines = Path(service["EnvironmentFile"]).read_text("utf-8").splitlines()
        variables = dict(line.split("=", 1) for line in lines)
        return shlex.split(service.get("ExecStart", "")), variables


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    if not can_make_hosts():
        pytest.skip("Network namespaces cannot be made here: run as root, with iproute2.")
    caddy = needed(shutil.which("caddy"), "Caddy", "apt-get install caddy")
    needed(shutil.which("curl"), "curl", "apt-get install curl")
    machine = Machine(tmp_path_factory.mktemp("machine"))
    folder = tmp_path_factory.mktemp("client")
    for path in ("etc/caddy", "srv/recoquest", "var/lib/caddy"):
        (machine.root / path).mkdir(parents=True)
    launcher = machine.root / "recoquest"
    launcher.write_text(f'#!/bin/sh\nexport PYTHONPATH={ROOT}\nexec {shlex.join(COMMAND)} "$@"\n')
    launcher.chmod(0o755)
    home = machine.root / "srv/recoquest"
    write_sample_data(home / "samples", images=60, size=64)
    make_bundle(home / "bundle")

    _, settings = _blocks("sh")
    # There is neither systemd nor the service's user here.
    left_out = ("systemctl", "chgrp", "install -d -o recoquest")
    machine.sh("".join(line + "\n" for line in settings.splitlines() if not line.startswith(left_out)))
    assert stat.S_IMODE((machine.root / "etc/recoquest.env").stat().st_mode) == 0o640
    words, variables = machine.unit("recoquest.service")
    environment = {**os.environ, **variables}
    with two_hosts(SITE) as (server, client):
        log = folder / "caddy.log"
        _, site = machine.unit("caddy.service.d/recoquest.conf")
        state = {"XDG_DATA_HOME": str(machine.root / "var/lib/caddy/.local/share"), "HOME": str(folder)}
        proxy = (caddy, "run", "--config", str(machine.root / "etc/caddy/Caddyfile"))
        with (
            server.running(*words, log=folder / "service.log", environment=environment, cwd=home),
            server.running(*proxy, log=log, environment={**os.environ, **site, **state}),
        ):
            keys = [line for line in machine.sh(PEOPLE).splitlines() if line.startswith("rq_")]
            authority = machine.local("/var/lib/caddy/.local/share/caddy/pki/authorities/local/root.crt")
            assert "/var/lib/caddy/.local/share/caddy/pki/authorities/local/root.crt" in SECTION
            _wait_until(Path(authority).is_file, log)
            shutil.copy(authority, folder / "root.crt")
            found = Deployment(client, folder, log, dict(zip(("ANNA", "CARLA", "ADMIN"), keys, strict=True)))
            _wait_until(lambda: _is_ready(found), folder / "service.log")
            yield found


def _is_ready(deployment: Deployment) -> bool:
    words = ("--cacert", "root.crt", "--output", "/dev/null", "--silent", "--write-out", "%{http_code}")
    url = f"https://{SITE}/v1/collections/scenes"
    return (
        deployment.client.run("curl", *words, *deployment.bearer("ANNA"), url, cwd=deployment.folder).stdout
        == "200"
    )


def _wait_until(true: Callable[[], bool], log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.2)


def test_a_reader_searches_from_another_host_and_a_curator_writes(deployment: Deployment) -> None:
    (deployment.folder / "client.py").write_text(PROGRAM)
    Image.new("RGB", (64, 64), "brown").save(deployment.folder / "dog.png")
    answers = {}
    for name in ("ANNA", "CARLA"):
        done = deployment.client.run(
            sys.executable,
            "client.py",
            environment={
                "RECOQUEST_KEY": deployment.keys[name],
                "SSL_CERT_FILE": "root.crt",
                "PYTHONPATH": str(ROOT / "clients/python"),
            },
            cwd=deployment.folder,
        )
        assert done.returncode == 0, done.stderr
        answers[name] = done.stdout.splitlines()
    assert all(lines[0].startswith("found ['scene") for lines in answers.values())
    assert answers["ANNA"][1].startswith("refused ") and "curator" in answers["ANNA"][1]
    assert answers["CARLA"][1] == "written 1"


def test_plain_http_leads_to_https_and_https_is_remembered(deployment: Deployment) -> None:
    answer = deployment.curl("--include", f"http://{SITE}/v1/collections?a=b")
    assert answer.startswith("HTTP/1.1 308")
    assert f"Location: https://{SITE}/v1/collections?a=b" in answer
    head = deployment.curl("--include", f"https://{SITE}/livez").lower()
    assert head.startswith("http/2 200")
    assert "strict-transport-security: max-age=31536000\n" in head.replace("\r", "")
    assert "\nserver:" not in head


def test_certificates_of_others_are_refused(deployment: Deployment) -> None:
    assert deployment.client.run("curl", "--silent", f"https://{SITE}/livez").returncode == 60


def test_a_session_has_a_cookie_for_https_alone(deployment: Deployment) -> None:
    url = f"https://{SITE}/v1/session"
    answer = deployment.curl("--include", "--request", "POST", *deployment.bearer("ANNA"), url)
    cookie = next(line for line in answer.splitlines() if line.lower().startswith("set-cookie"))
    assert {"Secure", "HttpOnly"} <= {part.strip() for part in cookie.split(";")}


def test_a_caller_cannot_say_where_it_is(deployment: Deployment) -> None:
    """The address in the audit trail is that of the connection, not the one that the caller has made up."""
    url = f"https://{SITE}/v1/collections/scenes/search"
    made_up = ("--header", "X-Forwarded-For: 198.51.100.7")
    body = ("--header", "Content-Type: application/json", "--data", '{"text": "a made up address"}')
    deployment.curl(*deployment.bearer("ANNA"), *made_up, *body, url)

    def trail() -> str:
        return deployment.curl(*deployment.bearer("ADMIN"), f"https://{SITE}/v1/audit?action=search")

    # Events of reads are written within half a second.
    _wait_until(lambda: "a made up address" in trail(), deployment.log)
    assert "192.0.2.2" in trail()
    assert "198.51.100.7" not in trail() + deployment.log.read_text()


def test_figures_stay_inside(deployment: Deployment) -> None:
    for path in ("/metrics", "/%6detrics", "//metrics"):
        code = deployment.curl(
            "--output", "/dev/null", "--write-out", "%{http_code}", "--path-as-is", f"https://{SITE}{path}"
        )
        assert code == "404", path


def test_a_large_file_passes_and_a_larger_one_is_refused_by_the_service(deployment: Deployment) -> None:
    noise = Image.effect_noise((3500, 3500), 90).convert("RGB")
    noise.save(deployment.folder / "large.png", compress_level=1)
    assert 10 << 20 < (deployment.folder / "large.png").stat().st_size < 20 << 20
    (deployment.folder / "larger").write_bytes(bytes(26 << 20))
    url = f"https://{SITE}/v1/collections/scenes/search"
    form = ("--form", 'query={"limit": 1}')
    answer = json.loads(deployment.curl(*deployment.bearer("ANNA"), *form, "--form", "image=@large.png", url))
    assert len(answer["hits"]) == 1
    larger = (*deployment.bearer("ANNA"), *form, "--form", "image=@larger")
    # The answer comes before the request is sent: curl 7.88 may then lose its body (status 18).
    refused = deployment.curl("--include", *larger, url, status=18)
    assert refused.startswith("HTTP/2 413")
    answers = [json.loads(line) for line in deployment.log.read_text("utf-8").splitlines()]
    (sent,) = [answer["size"] for answer in answers if answer.get("status") == 413]
    assert sent > 0
    assert f"\ncontent-length: {sent}\n" in refused.replace("\r", "")


def test_events_of_a_job_come_as_they_happen(deployment: Deployment) -> None:
    """No worker runs, so the stream stays open: a proxy that gathers answers would send nothing of it."""
    given = ("--header", "Content-Type: application/json", "--data", '{"kind": "tidy"}')
    job = json.loads(deployment.curl(*deployment.bearer("ADMIN"), *given, f"https://{SITE}/v1/jobs"))["id"]
    words = ("--no-buffer", "--silent", "--cacert", "root.crt", "--max-time", "3")
    url = f"https://{SITE}/v1/jobs/{job}/events"
    done = deployment.client.run("curl", *words, *deployment.bearer("ADMIN"), url, cwd=deployment.folder)
    assert done.returncode == 28, "the stream has ended"
    assert "event: job" in done.stdout


def test_heads_are_bounded(deployment: Deployment) -> None:
    head = ("--header", "X-Long: " + "a" * 80_000)
    done = deployment.client.run(
        "curl", "--silent", "--http1.1", "--include", "--cacert", "root.crt", *head, f"https://{SITE}/livez",
        cwd=deployment.folder,
    )  # fmt: skip
    assert done.stdout.startswith("HTTP/1.1 431")


def test_the_log_has_no_query_strings_keys_or_ids(deployment: Deployment) -> None:
    url = f"https://{SITE}/v1/collections/scenes"
    deployment.curl(*deployment.bearer("ANNA"), f"{url}/images?filter=secret-filter")
    deployment.curl(*deployment.bearer("ANNA"), f"{url}/images/secret-id/thumbnail")
    lines = [
        json.loads(line) for line in deployment.log.read_text().splitlines() if "handled request" in line
    ]
    paths = {line["request"]["uri"] for line in lines}
    assert {"/v1/collections/scenes/images?-", "/v1/collections/scenes/images/-"} <= paths
    text = deployment.log.read_text()
    assert "secret-" not in text
    assert not any(key in text for key in deployment.keys.values())

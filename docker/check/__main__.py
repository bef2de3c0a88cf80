"""Checks an image: `python -m check ROOT WORK < what buildah inspect printed`.

ROOT has the files of the image, WORK is a folder to work in.
"""

import contextlib
import os
import secrets
import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from check.compose import resolved
from check.containers import CheckError, Container, Service, ask, free_port
from check.servers import find_postgresql, postgresql

_JOB_SECONDS = 600
# As little as shows that the image has all that training needs.
_TRAINING = ("train", "demo-scenes", "--data", "samples/scenes", "--set", "train.epochs=1")


def check_alone(container: Container, home: Path) -> None:
    """Service and worker of docker-compose.yml: a job trains, and its model is searched with."""
    services = resolved()
    service, worker, port = services["recoquest"], services["worker"], free_port()
    with container.started(service, home, port) as running:
        _say(f"ready after {running.wait_until_ready(port, _ready_seconds()):.1f} s, with nothing in it")
        _check_health(container, service, home, port)
        _expect(not container.passes(worker, home, port), "the worker's health check says yes without one")
        with container.started(worker, home, port):
            container.run(worker, home, "sample-data", "samples", "--images", "100")
            job = container.run(worker, home, "jobs", "start", *_TRAINING).strip()
            _wait_for_job(port, f"/v1/jobs/{job}")
            _expect(container.passes(worker, home, port), "the worker's health check says no where it works")
            _say("the worker trained")
            bundle = f"jobs/{job}/run/bundle"
            container.run(worker, home, "index", "scenes", "--bundle", bundle, "--data", "samples/scenes")
            _check_tidying(port, None)
    with container.started(service, home, port) as running:
        _say(f"ready after {running.wait_until_ready(port, _ready_seconds()):.1f} s, with a collection")
        status, page = ask(port, "POST", "/v1/collections/scenes/search", {"text": "two sailboats"})
        _expect(status == 200 and page["hits"], f"a search answered {status}: {page}")
        _say(f"a search found {len(page['hits'])} images in {page['took_ms']['total']:.0f} ms")


def check_production(container: Container, home: Path) -> None:
    """Service and worker of compose.production.yml, on PostgreSQL of this machine."""
    programs = find_postgresql()
    if programs is None:
        _say("left out: the production file, for PostgreSQL is not installed")
        return
    password, key, port = secrets.token_hex(24), secrets.token_hex(24), free_port()
    services = resolved("production")
    service, worker = services["recoquest"], services["worker"]
    with contextlib.ExitStack() as stack:
        user = services["postgres"]["environment"]["POSTGRES_USER"]
        database = stack.enter_context(postgresql(programs, user, password))
        url = f"postgresql+psycopg://{user}:{password}@127.0.0.1:{database}/{user}"
        _write_secrets(home.with_name("secrets"), {"database-url": url, "admin-key": key})
        running = stack.enter_context(container.started(service, home, port))
        _say(f"ready after {running.wait_until_ready(port, _ready_seconds()):.1f} s, with PostgreSQL")
        stack.enter_context(container.started(worker, home, port))
        status, _ = ask(port, "POST", "/v1/jobs", {"kind": "tidy"})
        _expect(status == 401, f"a job without the key was answered {status}")
        _check_tidying(port, key)
    left = sorted(path.name for path in home.glob("*.sqlite3"))
    _expect(not left, f"the production settings still write {left}")


def check_gpu() -> None:
    """compose.gpu.yml asks for the GPUs, and builds with arguments that docker/Dockerfile knows."""
    services = resolved("gpu")
    for name in ("recoquest", "worker"):
        devices = services[name]["deploy"]["resources"]["reservations"]["devices"]
        _expect(any("gpu" in each["capabilities"] for each in devices), f"{name} is given no GPU")
        _expect(services[name]["image"] == "recoquest:latest-gpu", f"{name} runs the image for CPUs")
    _say("compose.gpu.yml gives service and worker the GPUs")


def _write_secrets(folder: Path, values: Mapping[str, str]) -> None:
    folder.mkdir()
    for name, value in values.items():
        (folder / name).write_text(f"{value}\n")
        (folder / name).chmod(0o444)


def _check_health(container: Container, service: Service, home: Path, port: int) -> None:
    _expect(container.passes(service, home, port), "the health check says no where the service is ready")
    _expect(
        not container.passes(service, home, free_port()), "the health check says yes where nothing listens"
    )


def _check_tidying(port: int, key: str | None) -> None:
    status, job = ask(port, "POST", "/v1/jobs", {"kind": "tidy"}, key)
    _expect(status == 202, f"a job was answered {status}: {job}")
    _wait_for_job(port, f"/v1/jobs/{job['id']}", key)
    _say("the worker did a job that was given over HTTP")


def _wait_for_job(port: int, path: str, key: str | None = None) -> None:
    deadline = time.monotonic() + _JOB_SECONDS
    while (job := ask(port, "GET", path, key=key)[1])["state"] in ("queued", "running"):
        _expect(time.monotonic() < deadline, f"not done within {_JOB_SECONDS} s: {job}")
        time.sleep(0.5)
    _expect(job["state"] == "done", f"a job failed: {job}")


def _expect(condition: object, otherwise: str) -> None:
    if not condition:
        raise CheckError(otherwise)


def _say(what: str) -> None:
    sys.stdout.write(f"{time.strftime('%T')}  {what}\n")
    sys.stdout.flush()


def _ready_seconds() -> float:
    return float(os.environ.get("RECOQUEST_CHECK_READY", "10"))


def main(root: str, work: str) -> None:
    """Makes all checks."""
    container = Container.of(Path(root), sys.stdin.read())
    for check in (check_alone, check_production):
        home = Path(work, check.__name__)
        home.mkdir(mode=0o750)
        shutil.chown(home, *map(int, container.user.split(":")))
        check(container, home)
    check_gpu()


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except CheckError as error:
        sys.exit(f"check failed: {error}")

"""A home folder with jobs for tests, and workers in processes of their own."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr

from app.jobs.queue import give_job
from app.settings import Settings
from index.catalogue import Catalogue, open_catalogue
from index.catalogue.jobs import Job, get_job
from tests.access import OPEN
from tests.e2e.work import COMMAND

PATIENCE_SECONDS = 600


@dataclass
class Jobs:
    """A home folder and its catalogue."""

    settings: Settings
    catalogue: Catalogue

    def give(self, kind: str, *arguments: object, folder: Path | None = None) -> int:
        given = [str(argument) for argument in arguments]
        where = None if folder is None else str(folder)
        return give_job(self.catalogue, kind, given, folder=where).id

    def get(self, number: int) -> Job:
        with self.catalogue.read() as session:
            return get_job(session, number)

    def wait(self, number: int, until: Callable[[Job], bool] = lambda job: job.has_ended) -> Job:
        """Wait until something is true of a job."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not until(job := self.get(number)):
            assert time.monotonic() < deadline, f"{job}\n{self.log(number)}"
            time.sleep(0.05)
        return job

    def log(self, number: int) -> str:
        file = self.settings.home / "jobs" / str(number) / "log.txt"
        return file.read_text() if file.exists() else ""

    @contextmanager
    def worker(self, *arguments: str) -> "Iterator[subprocess.Popen[bytes]]":
        """`recoquest worker` in a process, killed in the end if it still runs."""
        ours = {
            f"RECOQUEST_{name.upper()}": value.get_secret_value()
            if isinstance(value, SecretStr)
            else str(value)
            for name, value in self.settings.model_dump().items()
            if name in self.settings.model_fields_set and value is not None
        }
        with tempfile.TemporaryFile("w+") as log:
            process = subprocess.Popen(
                [*COMMAND, "worker", *arguments], stderr=log, env={**os.environ, **ours}
            )
            try:
                yield process
            finally:
                process.kill()
                process.wait()
                log.seek(0)
                sys.stdout.write(log.read())


@contextmanager
def opened_jobs(home: Path, database_url: str | None, train_processes: int = 0) -> Iterator[Jobs]:
    """The jobs of a home folder; on a busy machine a worker may say nothing for seconds and keep its own."""
    settings = Settings(
        home=home,
        device="cpu",
        database_url=database_url,
        job_lease_s=15,
        job_stop_s=8,
        train_processes=train_processes,
        **OPEN,
    )
    catalogue = open_catalogue(settings.catalogue_url)
    try:
        yield Jobs(settings, catalogue)
    finally:
        catalogue.close()

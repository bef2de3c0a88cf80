"""Studies a second that a collection takes over from a real Orthanc, beside Orthanc's own speed.

    python -m tests.benchmarks.pacs --studies 10000

Stores made films, two views a study, runs `recoquest pacs sync`, stops it at random moments, by SIGTERM and
by SIGKILL in turn, until it ends by itself, and compares what is there with what the archive has.
"""

import argparse
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import typer

from app.engine import open_engine
from app.settings import Settings
from index.catalogue.collections import find_active
from index.writes.intake import known_images
from tests.app.conftest import make_bundle
from tests.dicom_films import make_film, uid
from tests.orthanc import INSTALL, OrthancServer, find_orthanc, serve_orthanc
from training.common.errors import RecoquestError
from training.common.progress import progress_bar

_VIEWS = ("PA", "LL")
_THREADS = 4
_STOPS = (signal.SIGTERM, signal.SIGKILL)
_LONGEST_END_S = 60.0


def _fill(orthanc: OrthancServer, studies: int, side: int) -> None:
    def store(study: int) -> None:
        days = f"20{10 + study % 15}{1 + study % 12:02}{1 + study % 28:02}"
        films = (
            make_film(2 * study + n, study=study, view=view, rows=side, columns=side, StudyDate=days)
            for n, view in enumerate(_VIEWS)
        )
        orthanc.store(films)

    with ThreadPoolExecutor(_THREADS) as pool, progress_bar("Storing", studies) as bar:
        for _ in pool.map(store, range(studies)):
            bar.advance()


def _read(orthanc: OrthancServer, studies: int) -> float:
    """Seconds in which Orthanc gives the same files, one request each, to as many threads as the sync has."""

    def get(number: int) -> int:
        study, view = number // 2, _VIEWS[number % 2]
        series = f"studies/{uid('study', study)}/series/{uid('series', study, view)}"
        path = f"{series}/instances/{uid('film', number)}"
        headers = {"Accept": 'multipart/related; type="application/dicom"; transfer-syntax=*'}
        answer = orthanc.http.get(f"/dicom-web/{path}", headers=headers)
        return len(answer.raise_for_status().content)

    started = time.perf_counter()
    with ThreadPoolExecutor(_THREADS) as pool:
        assert all(pool.map(get, range(2 * studies)))
    return time.perf_counter() - started


def _command(home: Path, bundle: Path, orthanc: OrthancServer) -> list[str]:
    run = "from app.cli.main import run; run()"
    options = ["--url", orthanc.dicom_web, "--bundle", str(bundle), "--home", str(home), "--device", "cpu"]
    return [sys.executable, "-c", run, "pacs", "sync", "films", *options]


def _sync(
    command: Sequence[str], stops: int, longest_s: float, draw: random.Random
) -> tuple[float, Counter[signal.Signals]]:
    """Run to the end, stopped before so often at most; return the seconds of all runs, and the stops."""
    seconds, stopped = 0.0, Counter[signal.Signals]()
    while True:
        number = _STOPS[stopped.total() % len(_STOPS)]
        started = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            patience = draw.uniform(0.2, 1) * longest_s if stopped.total() < stops else None
            output, _ = process.communicate(timeout=patience)
        except subprocess.TimeoutExpired:
            process.send_signal(number)
            output = _ended(process)
            if process.returncode != 0:
                stopped[number] += 1
                seconds += time.perf_counter() - started
                continue
        seconds += time.perf_counter() - started
        if process.returncode != 0:
            raise RecoquestError(f"The sync ended with {process.returncode}.")
        typer.echo(output.strip())
        return seconds, stopped


def _ended(process: "subprocess.Popen[str]") -> str:
    """Wait for the end of a process that was stopped, and return its output."""
    try:
        return process.communicate(timeout=_LONGEST_END_S)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise RecoquestError(f"The sync went on for {_LONGEST_END_S:g} s after SIGTERM.") from None


def _ids(home: Path) -> list[str]:
    engine = open_engine(Settings(home=home))
    try:
        with engine.home.catalogue.read() as session:
            found = find_active(session, "films")
            assert found is not None
            return list(known_images(session, found[0]))
    finally:
        engine.close()


@contextmanager
def _archive() -> Iterator[OrthancServer]:
    programs = find_orthanc()
    if programs is None:
        raise RecoquestError(f"Orthanc is not installed: {INSTALL}.")
    with serve_orthanc(programs) as orthanc:
        yield orthanc


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=10_000, help="studies of two films each")
    parser.add_argument("--side", type=int, default=256, help="height and width of a film in pixels")
    parser.add_argument("--stops", type=int, default=4, help="runs that are stopped before the one that ends")
    parser.add_argument("--stopped-after", type=float, default=60.0, help="longest seconds of a stopped run")
    given = parser.parse_args(arguments)
    with TemporaryDirectory(prefix="recoquest-pacs-") as name, _archive() as orthanc:
        folder = Path(name)
        bundle, home = make_bundle(folder / "bundle", seed=0), folder / "home"
        _fill(orthanc, given.studies, given.side)
        alone = _read(orthanc, given.studies)
        command = _command(home, bundle, orthanc)
        seconds, stopped = _sync(command, given.stops, given.stopped_after, random.Random(0))
        there, wanted = _ids(home), orthanc.instances()
        again = time.perf_counter()
        _sync(command, 0, 0, random.Random(0))
        again = time.perf_counter() - again
    missing, doubled = len(wanted - set(there)), len(there) - len(set(there))
    typer.echo(f"Orthanc alone: {given.studies / alone:,.1f} studies a second ({alone:,.1f} s)")
    counted = ", ".join(f"{stopped[number]} times by {number.name}" for number in _STOPS)
    typer.echo(f"Sync: {given.studies / seconds:,.1f} studies a second ({seconds:,.1f} s, stopped {counted})")
    typer.echo(f"Share of Orthanc's own speed: {alone / seconds:.2f}")
    typer.echo(f"A pass with nothing new: {again:,.1f} s, the start of the command included")
    typer.echo(
        f"Missing: {missing:,}; doubled: {doubled:,}; not of the archive: {len(set(there) - wanted):,}"
    )
    if missing or doubled or set(there) != wanted:
        raise SystemExit(1)


if __name__ == "__main__":
    main()

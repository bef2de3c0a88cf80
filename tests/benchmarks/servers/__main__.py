"""The service compared with a bare echo, Milvus and PostgreSQL with pgvector: the same vectors for all.

Run `python -m tests.benchmarks.servers`, or `make bench-server`; docs/research/search-benchmark.md says
what is measured. Servers listen on loopback alone, run one after the other (the service and the echo take
turns), and end with the benchmark.
"""

import argparse
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Final

import typer

from tests.benchmarks.search.contestants.our_engine import COLLECTION
from tests.benchmarks.search.measuring import UNFILTERED
from tests.benchmarks.search.runs import FailedError, built
from tests.benchmarks.search.workload import SHARES, Case, Workload, prepare
from tests.benchmarks.servers import milvus_peer, pgvector_peer, report, wrk
from tests.benchmarks.servers.callers import Kind, Target
from tests.benchmarks.servers.measuring import Measuring, Server
from tests.benchmarks.servers.peers import LeftOutError, Served, serving_milvus, serving_pgvector
from tests.benchmarks.servers.report import ECHO, ENGINE, MANY, OURS, Measured
from tests.benchmarks.service import answers, free_port, running, serving_process, wait_until
from training.common.atomic import atomic_file

_CASES: Final = (UNFILTERED, *(f"{100 * share:g} %, any" for share in SHARES))
_NO_WRK: Final = (
    "wrk is not installed, so Python processes call the service and the echo and take processor time from "
    "them. `apt-get install wrk` installs it."
)
_Serving = Callable[[Path, Workload], AbstractContextManager[Served]]
_PEERS: Final[dict[str, tuple[Kind, str, _Serving]]] = {
    "Milvus": ("milvus", milvus_peer.SETTING, serving_milvus),
    "pgvector": ("pgvector", pgvector_peer.SETTING, serving_pgvector),
}
_Results = dict[str, dict[str, Measured]]


def main() -> int:
    """Measure everything that is installed, and print a table; status 1 when a server failed."""
    # Whoever ends the benchmark ends its servers too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    arguments = _arguments()
    begun = time.monotonic()
    workload = prepare(arguments.cache, arguments.count, arguments.dim)
    typer.echo(
        f"{len(workload.vectors):,} vectors of {workload.dim}, {arguments.threads} threads, "
        f"{arguments.processes} processes of the service, {platform.machine()}; {MANY} callers and one\n"
    )
    results: _Results = {case: {} for case in _CASES}
    try:
        with tempfile.TemporaryDirectory(dir=arguments.cache) as folder:
            failed = _run_all(workload, arguments, Path(folder).absolute(), results)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    finally:
        # A run that is ended shows what it has measured until then.
        if any(results.values()):
            _print(results)
            _keep(results, arguments.cache / f"{workload.folder.name}-servers.json")
        typer.echo(f"Took {(time.monotonic() - begun) / 60:.1f} minutes.")
    return int(failed)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.servers", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--count", type=int, default=100_000, help="made vectors (default: 100,000)")
    parser.add_argument("--dim", type=int, default=512, help="numbers in a vector (default: 512)")
    parser.add_argument("--only", nargs="+", choices=(OURS, *_PEERS), help="measure these alone")
    parser.add_argument(
        "--texts", action="store_true", help="give each image an embedded text, which no peer has"
    )
    parser.add_argument(
        "--ef", type=int, nargs="+", default=[128], help="search parameters of the peers (default: 128)"
    )
    parser.add_argument("--seconds", type=float, default=5.0, help="of each load (default: 5)")
    parser.add_argument(
        "--threads", type=int, default=len(os.sched_getaffinity(0)), help="of the engine without a server"
    )
    parser.add_argument(
        "--processes", type=int, default=len(os.sched_getaffinity(0)), help="of the service (default: cores)"
    )
    parser.add_argument(
        "--cache", type=Path, default=Path(".bench"), help="folder of vectors and of what is built"
    )
    parser.add_argument(
        "--peers", type=Path, help="folder where peers are installed and filled (default: peers in --cache)"
    )
    return parser.parse_args()


def _run_all(workload: Workload, arguments: argparse.Namespace, folder: Path, results: _Results) -> bool:
    """Put what is measured into `results`, and tell whether a server failed."""
    by_name = {case.name: case for case in workload.cases()}
    cases = [by_name[name] for name in _CASES]
    measuring = Measuring(workload, arguments.seconds, arguments.threads, folder)
    failed = False
    for name in arguments.only or (OURS, *_PEERS):
        try:
            if name == OURS:
                _measure_ours(workload, arguments, folder, cases, measuring, results)
            else:
                _measure_peer(name, workload, arguments, cases, measuring, results)
        except LeftOutError as error:
            typer.echo(f"{name} is left out: {error}", err=True)
        except (FailedError, RuntimeError, OSError, subprocess.TimeoutExpired) as error:
            typer.echo(f"{name} failed: {error}", err=True)
            failed = True
    return failed


def _measure_ours(
    workload: Workload,
    arguments: argparse.Namespace,
    folder: Path,
    cases: list[Case],
    measuring: Measuring,
    results: _Results,
) -> None:
    """Measure the service and the echo in turn, then the engine without a server."""
    if not wrk.installed():
        typer.echo(_NO_WRK, err=True)
    name = "recoquest" if arguments.texts else "recoquest without texts"
    files, _ = built(name, workload, arguments.threads)
    shutil.copytree(files, folder / "home")
    echo_port = free_port()
    echoing = [sys.executable, "-m", "tests.benchmarks.servers.echo", str(echo_port)]
    serving = serving_process(folder / "home", arguments.processes)
    with serving as (port, process), running(echoing) as echo:
        wait_until(partial(answers, echo_port, "/1"), echo)
        path = f"/v1/collections/{COLLECTION}/search"
        ours = Server(OURS, Target("service", {"port": port, "path": path}), process=process)
        for case in cases:
            measured, size = measuring.found(ours, case)
            _note(results, case, OURS, measured)
            target = Target("echo", {"port": echo_port, "path": f"/{size}"})
            bare = measuring.speeds(Server(ECHO, target, process=echo.pid), case)
            _note(results, case, ECHO, bare)
    options = {"name": name, "files": str(files.absolute()), "threads": arguments.threads}
    for case in cases:
        measured, _ = measuring.found(Server(ENGINE, Target("engine", options)), case)
        _note(results, case, ENGINE, measured)


def _measure_peer(
    name: str,
    workload: Workload,
    arguments: argparse.Namespace,
    cases: list[Case],
    measuring: Measuring,
    results: _Results,
) -> None:
    kind, setting, serving = _PEERS[name]
    place = (arguments.peers or arguments.cache / "peers") / kind
    typer.echo(setting)
    with serving(place.absolute(), workload) as served:
        for effort in arguments.ef:
            target = Target(kind, {**served.options, "ef": effort})
            row = f"{name}, ef {effort}"
            server = Server(row, target, str(served.python), served.process)
            for case in cases:
                measured, _ = measuring.found(server, case)
                _note(results, case, row, measured)


def _note(results: _Results, case: Case, name: str, measured: Measured) -> None:
    results[case.name][name] = measured
    typer.echo(
        f"{case.name}, {name}: p50 {measured.one.p50:.2f} ms, {measured.many.rate:,.0f} searches a second"
    )


def _print(results: _Results) -> None:
    typer.echo(f"\n{report.overview(results)}")
    for line in report.refusals(results):
        typer.echo(line)
    if any(ENGINE in found for found in results.values()):
        typer.echo(f"\nThe service and its targets:\n{report.targets(results)}")


def _keep(results: _Results, place: Path) -> None:
    rows = {case: {name: asdict(one) for name, one in found.items()} for case, found in results.items()}
    with atomic_file(place) as file:
        file.write(json.dumps(rows, indent=1).encode())


if __name__ == "__main__":
    sys.exit(main())

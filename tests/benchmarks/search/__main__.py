"""Search beside its peers: speed at equal recall, with and without filters, build, memory, disk and start.

Run `python -m tests.benchmarks.search`, or `make bench-search`; docs/research/search-benchmark.md
says what is measured.
"""

import argparse
import json
import os
import platform
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Final

import typer

from tests.benchmarks.search import report
from tests.benchmarks.search.plot import plot
from tests.benchmarks.search.registry import CONTESTANTS
from tests.benchmarks.search.runs import FailedError, Result, run, scan
from tests.benchmarks.search.workload import Workload, prepare
from training.common.atomic import atomic_file

_GIGABYTE: Final = 1e9


def main() -> int:
    """Measure every contestant that is installed, and print tables; status 1 when one failed."""
    # Whoever ends the benchmark ends its children too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    arguments = _arguments()
    started = time.monotonic()
    workload = prepare(arguments.cache, arguments.count, arguments.dim, arguments.vectors, arguments.made)
    count = len(workload.vectors)
    title = f"{count:,} vectors of {workload.dim}, {arguments.threads} threads, {platform.machine()}"
    typer.echo(f"{title}; recall@10 >= {arguments.recall}\n")
    results: dict[str, Result] = {}
    try:
        failed = _run_all(workload, arguments, results)
    finally:
        # A run that is ended shows what it has measured until then.
        if results:
            _print(results, count, arguments.recall)
            _keep(results, title, arguments.recall, arguments.cache / f"{workload.folder.name}-results")
    _print_scan(workload, arguments.threads)
    typer.echo(f"Took {(time.monotonic() - started) / 60:.1f} minutes.")
    return int(failed)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.search", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--count", type=int, default=100_000, help="made vectors (default: 100,000)")
    parser.add_argument("--dim", type=int, default=512, help="numbers in a made vector (default: 512)")
    parser.add_argument(
        "--vectors", type=Path, help="real vectors (N, D) in a .npy file, instead of made ones"
    )
    parser.add_argument(
        "--made", choices=("tree", "clusters"), default="tree", help="how made vectors lie (default: tree)"
    )
    parser.add_argument(
        "--recall", type=float, default=0.99, help="recall@10 that is asked for (default: 0.99)"
    )
    parser.add_argument(
        "--threads", type=int, default=len(os.sched_getaffinity(0)), help="for each contestant"
    )
    parser.add_argument("--only", nargs="+", choices=list(CONTESTANTS), help="run these contestants alone")
    parser.add_argument(
        "--cache", type=Path, default=Path(".bench"), help="folder of vectors and built contestants"
    )
    return parser.parse_args()


def _run_all(workload: Workload, arguments: argparse.Namespace, results: dict[str, Result]) -> bool:
    """Put what is measured of each contestant into `results`, and tell whether one failed."""
    failed = False
    for name in arguments.only or CONTESTANTS:
        entry = CONTESTANTS[name]
        if not entry.installed:
            typer.echo(
                f'{name} is left out: install it with pip install -c constraints.txt ".[bench]"', err=True
            )
            continue
        try:
            beside = report.compared_with(name, entry.load().carries_payload)
            ours = None if beside is None else results.get(beside)
            result = run(name, workload, arguments.threads, arguments.recall, ours)
        except FailedError as error:
            typer.echo(f"{name} failed: {error}", err=True)
            failed = True
            continue
        results[name] = result
        chosen = result.chosen
        typer.echo(
            f"{name}: {result.setting}; recall {chosen.recall:.3f}, {chosen.single:,.0f} and "
            f"{chosen.batch:,.0f} queries a second"
        )
    return failed


def _print(results: dict[str, Result], count: int, recall: float) -> None:
    typer.echo(f"\n{report.overview(results, count, recall)}")
    for name in (name for name in results if name.startswith("recoquest")):
        typer.echo(f"\nSearches of {name}:\n{report.cases(results[name])}")
    head = "Queries a second, one at a time, first and later with each filter"
    typer.echo(f"\n{head}:\n{report.filtered(results, recall)}")
    typer.echo(f"\nHow many times better ours is:\n{report.ratios(results, recall)}")
    equal = report.ratios_at_our_recall(results)
    typer.echo(f"\nHow many times as fast, where a peer finds no less than ours:\n{equal}")


def _keep(results: dict[str, Result], title: str, recall: float, place: Path) -> None:
    with atomic_file(place.with_suffix(".json")) as file:
        file.write(json.dumps({name: asdict(result) for name, result in results.items()}, indent=1).encode())
    plot(results, title, recall, place.with_suffix(".png"))
    typer.echo(f"\nPlot: {place.with_suffix('.png')}")


def _print_scan(workload: Workload, threads: int) -> None:
    speed = scan(workload, threads)
    scanned, read = (speed[name] / _GIGABYTE for name in ("scan", "read"))
    typer.echo(
        f"Exact scan: {scanned:.1f} GB/s of float16 vectors, {scanned / read:.0%} of the {read:.1f} GB/s at "
        "which memory is read."
    )


if __name__ == "__main__":
    sys.exit(main())

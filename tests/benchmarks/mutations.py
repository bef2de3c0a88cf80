"""The share of small random mistakes in packages that their quick tests notice.

Run `python -m tests.benchmarks.mutations --folder FOLDER --seed 43`, for training with `--package training`.
It works in copies of the committed tree: first it runs the quick tests, and notes which lines each runs.
Then it makes one mistake at a time and runs up to 40 of the tests that run its line, or its file where no
test runs the line but by an import. A mistake is noticed if a test fails with it and passes without it.

Results are kept in the folder; the same command continues where it was stopped.
"""

import argparse
import ast
import copy
import json
import math
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from queue import Queue
from threading import Lock
from typing import Any, Final, NamedTuple

import typer

ROOT: Final = Path(__file__).resolve().parents[2]
TESTS: Final = 40
# So many of these are chosen by what they look at.
FOCUSED: Final = 25
FILES: Final = 16
_TEST_S: Final = 100
_RUN_S: Final = 300

_COMPARED: Final[Mapping[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_COMPUTED: Final[Mapping[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
}


class Mistake(NamedTuple):
    """A mistake in one place of a file.

    Attributes:
        path: The file, below the root.
        lines: First and last line.
        begin: First byte.
        end: Byte behind the last.
        text: What stands there with the mistake.
    """

    path: str
    lines: tuple[int, int]
    begin: int
    end: int
    text: str


def mistakes(root: Path, path: Path) -> Iterator[Mistake]:
    """Give all mistakes of a file, in an order that depends on its text alone."""
    source = path.read_bytes()
    begins = [0, *(found.end() for found in re.finditer(rb"\n", source))]
    tree = ast.parse(source)
    types = {id(inner) for node in ast.walk(tree) for kind in _types(node) for inner in ast.walk(kind)}
    for node in ast.walk(tree):
        if id(node) not in types and isinstance(node, ast.expr | ast.stmt):
            begin = begins[node.lineno - 1] + node.col_offset
            end = begins[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
            for text in _instead(node):
                lines = node.lineno, node.end_lineno or node.lineno
                yield Mistake(str(path.relative_to(root)), lines, begin, end, text)


def _types(node: ast.AST) -> Iterator[ast.AST]:
    for name in ("annotation", "returns"):
        kind = getattr(node, name, None)
        if isinstance(kind, ast.AST):
            yield kind
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == "Literal":
        yield node


def _instead(node: ast.expr | ast.stmt) -> Iterator[str]:
    """Give what could stand by mistake for an expression or a statement."""
    other: Any = copy.deepcopy(node)
    match node:
        case ast.Compare():
            for place, operator in enumerate(node.ops):
                other = copy.deepcopy(node)
                other.ops[place] = _COMPARED[type(operator)]()
                yield f"({ast.unparse(other)})"
        case ast.BoolOp():
            other.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield f"({ast.unparse(other)})"
        case ast.UnaryOp(op=ast.Not()):
            yield f"({ast.unparse(node.operand)})"
        case ast.Constant(value=bool() as flag):
            yield str(not flag)
        case ast.Constant(value=int() as number):
            yield str(number + 1)
        case ast.Constant(value=float() as real):
            yield repr(2 * real or 1.0)
        case ast.BinOp() | ast.AugAssign() if type(node.op) in _COMPUTED and not _has_text(node):
            other.op = _COMPUTED[type(node.op)]()
            yield f"({ast.unparse(other)})" if isinstance(node, ast.BinOp) else ast.unparse(other)
        case ast.Break():
            yield "continue"
        case ast.Continue():
            yield "break"
        case ast.Return(value=ast.expr()) if ast.unparse(node) != "return None":
            yield "return None"
        case ast.Expr(value=ast.Call() | ast.Await()):
            yield "pass"


def _has_text(node: ast.BinOp | ast.AugAssign) -> bool:
    texts = (ast.JoinedStr, ast.Constant)
    parts = (part for part in (getattr(node, "left", None), getattr(node, "right", None)) if part)
    return any(
        isinstance(part, texts) and isinstance(getattr(part, "value", ""), str | bytes) for part in parts
    )


class Covered:
    """Which lines each test runs, from a file of coverage.py with a context for each test."""

    def __init__(self, path: Path, packages: Sequence[str]) -> None:
        # By file: tests by line, and how many of its lines a test runs.
        self._tests: dict[str, dict[int, set[str]]] = {}
        self._lines: dict[str, Counter[str]] = {}
        self._all: Counter[str] = Counter()
        with closing(sqlite3.connect(path)) as base:
            rows = base.execute(
                "SELECT path, context, numbits FROM line_bits JOIN context ON context.id = context_id "
                "JOIN file ON file.id = file_id WHERE context != ''"
            )
            for file, context, bits in rows:
                test = context.rpartition("|")[0]
                name = next(file[file.index(f"/{top}/") + 1 :] for top in packages if f"/{top}/" in file)
                lines = [8 * at + bit for at, byte in enumerate(bits) for bit in range(8) if byte >> bit & 1]
                for line in lines:
                    self._tests.setdefault(name, {}).setdefault(line, set()).add(test)
                self._lines.setdefault(name, Counter())[test] += len(lines)
                self._all[test] += len(lines)

    def tests(self, mistake: Mistake) -> set[str]:
        """Return the tests that run one of a mistake's lines, or its file where the line runs at import."""
        by_line = self._tests.get(mistake.path, {})
        first, last = mistake.lines
        return {test for line in range(first, last + 1) for test in by_line.get(line, ())} or set(
            self._lines.get(mistake.path, ())
        )

    def focus(self, test: str, path: str) -> float:
        """Return the share of a file in all lines that a test runs."""
        return self._lines[path][test] / self._all[test]


def chosen(
    tests: set[str], focus: Callable[[str], float], draw: random.Random, packages: Sequence[str]
) -> list[str]:
    """Choose tests, one of every function at first, from few files; those of a file stay together.

    Most are those that look at little else than the file of the mistake, the rest is drawn.
    """
    drawn = sorted(tests)
    draw.shuffle(drawn)
    # Tests of whole processes and pages come behind the others.
    near = tuple(f"tests/{name}/" for name in packages)
    drawn.sort(key=lambda test: not test.startswith(near))
    nearest = sorted(drawn, key=lambda test: (not test.startswith(near), -focus(test)))
    files: dict[str, None] = {}
    some: dict[str, None] = {}
    functions: set[str] = set()
    for order, number, again in (
        (nearest, FOCUSED, False),
        (drawn, TESTS, False),
        (nearest, TESTS, True),
    ):
        for test in order:
            file, function = test.partition("::")[0], test.partition("[")[0]
            fits = (file in files or len(files) < FILES) and (again or function not in functions)
            if fits and len(some) < number:
                files[file] = some[test] = None
                functions.add(function)
    return sorted(some, key=lambda test: list(files).index(test.partition("::")[0]))


class Tree:
    """A copy of the committed tree, in which one mistake at a time is made."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._clock = 0
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, stdout=subprocess.PIPE, check=True)
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)

    def pytest(self, *words: str, seconds: float | None = None) -> tuple[int | None, str]:
        """Run pytest and return its status, None where it came to no end, and what it printed."""
        command = (sys.executable, "-m", "pytest", "-q", "-rfE", "-p", "no:cacheprovider", *words)
        # Processes that tests start read the copy as well.
        environment = {**os.environ, "PYTHONPATH": str(self.folder)}
        with (self.folder / "pytest.log").open("w+b") as log:
            process = subprocess.Popen(
                command, cwd=self.folder, env=environment, stdout=log, stderr=log, start_new_session=True
            )
            code: int | None = None
            with suppress(subprocess.TimeoutExpired):
                code = process.wait(seconds)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            log.seek(0)
            return code, log.read().decode(errors="replace")

    def failing(self, tests: list[str]) -> list[str]:
        """Return the first of some tests that fails, or all of them where it is not known which."""
        code, told = self.pytest("-x", "--tb=no", f"--timeout={_TEST_S}", *tests, seconds=_RUN_S)
        if code == 0:
            return []
        named = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", told, re.MULTILINE) if code == 1 else None
        return [named[1]] if named and named[1] in tests else tests

    def notices(self, mistake: Mistake, tests: list[str]) -> bool:
        """Return whether a test fails with a mistake and passes without it."""
        path = self.folder / mistake.path
        source, times = path.read_bytes(), path.stat()
        while tests:
            path.write_bytes(source[: mistake.begin] + mistake.text.encode() + source[mistake.end :])
            # Python takes a compiled file for this one if time (in seconds) and size are the same.
            self._clock += 1
            os.utime(path, (self._clock, self._clock))
            failing = self.failing(tests)
            path.write_bytes(source)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
            if not failing:
                return False
            if not self.failing(failing):
                return True
            tests = [test for test in tests if test not in failing]
        return False


def coverage_of(tree: Tree, path: Path, packages: Sequence[str]) -> Covered:
    """Run the quick tests once and note the lines that each runs; a file of an earlier run is taken."""
    if not path.is_file():
        options = ("--numprocesses", "auto", "--dist", "loadfile", "--cov-context=test", "--cov-report=")
        # Tests of app and index run training too, but they look at little of it.
        where = ("tests", "--ignore=tests/training") if "training" not in packages else ("tests/training",)
        told = tree.pytest(*options, *(f"--cov={name}" for name in packages), *where)[1]
        typer.echo(told.strip().splitlines()[-1])
        (tree.folder / ".coverage").replace(path)
    return Covered(path, packages)


def main() -> None:
    """Make mistakes, and print how many were noticed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--package", action="append", choices=("app", "index", "training"))
    parser.add_argument("--number", type=int, default=300)
    parser.add_argument("--at-once", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--folder", type=Path, required=True, help="where copies and results are kept")
    options = parser.parse_args()
    packages: list[str] = options.package or ["app", "index"]
    trees: Queue[Tree] = Queue()
    for place in range(options.at_once):
        trees.put(Tree(options.folder / str(place)))
    first = trees.get()
    covered = coverage_of(first, options.folder / "coverage.db", packages)
    paths = sorted(path for name in packages for path in (first.folder / name).rglob("*.py"))
    every = [mistake for path in paths for mistake in mistakes(first.folder, path)]
    trees.put(first)
    sample = random.Random(options.seed).sample(every, options.number)
    kept = options.folder / f"results-{options.seed}.jsonl"
    done = {}
    if kept.is_file():
        rows = map(json.loads, kept.read_text().splitlines())
        done = {
            Mistake(path, tuple(lines), *rest): row for row in rows for path, lines, *rest in [row["mistake"]]
        }
    todo = [mistake for mistake in sample if mistake not in done]
    begun, lock = time.monotonic(), Lock()

    def look(mistake: Mistake) -> None:
        tests = covered.tests(mistake)
        focus = partial(covered.focus, path=mistake.path)
        tree = trees.get()
        try:
            by = chosen(tests, focus, random.Random(f"{options.seed} {mistake}"), packages)
            row = {"mistake": mistake, "tests": len(tests), "noticed": tree.notices(mistake, by)}
        finally:
            trees.put(tree)
        with lock, kept.open("a") as file:
            done[mistake] = row
            file.write(json.dumps(row) + "\n")
            share = sum(one["noticed"] for one in done.values()) / len(done)
            left = (
                (time.monotonic() - begun) * (len(sample) - len(done)) / (len(done) - len(sample) + len(todo))
            )
            error = math.sqrt(share * (1 - share) / len(done))
            typer.echo(
                f"{len(done)} of {len(sample)}: noticed {share:.3f} +- {error:.3f}; {left / 60:.0f} min left"
            )

    with ThreadPoolExecutor(options.at_once) as threads:
        list(threads.map(look, todo))
    unnoticed = [row for row in done.values() if not row["noticed"]]
    for row in unnoticed:
        path, lines, _, _, text = row["mistake"]
        typer.echo(f"{path}:{lines[0]}  {text}  ({row['tests']} tests run it)")


if __name__ == "__main__":
    main()

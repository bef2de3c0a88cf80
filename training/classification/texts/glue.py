"""Reads the tab-separated tables of GLUE as its own archive has them."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from training.classification.texts.tasks import GlueTask
from training.common.errors import DataError
from training.common.rejections import Rejections, Usable


@dataclass(frozen=True, slots=True)
class Example:
    """A text, or two, and its label: the number of a class, or a score."""

    first: str
    second: str | None
    label: float


class BrokenLineError(Exception):
    """A line that cannot be used, and why."""


def read_glue(folder: Path, name: str, task: GlueTask, *, max_rejected: float = 1.0) -> Usable[Example]:
    """Read a table of a task.

    The tables have no quotes: every tab ends a value, and only a line feed ends a line.

    Raises:
        DataError: The file cannot be read, has other columns, too many broken lines, or no example.
    """
    path = folder / f"{name}.tsv"
    try:
        content = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from error
    lines = content.split(b"\n")
    if not lines[-1].strip():
        lines.pop()
    columns = task.columns
    body = list(enumerate(lines, start=1))
    if columns is None:
        columns = _header(path, lines[0] if lines else b"", task)
        body = body[1:]
    rejections = Rejections(len(body), max_rejected, source=str(path))
    examples = tuple(_examples(body, columns, task, rejections))
    if not examples:
        raise DataError(f"{path} has no line that can be used.")
    return Usable(examples, rejections)


def _header(path: Path, line: bytes, task: GlueTask) -> tuple[str, ...]:
    columns = tuple(line.decode("utf-8", errors="replace").rstrip("\r").split("\t"))
    for name in (task.first, task.second, task.label):
        if name is not None and name not in columns:
            raise DataError(f"{path} has no column {name!r}: is it a file of this task, with its header?")
    return columns


def _examples(
    lines: Sequence[tuple[int, bytes]], columns: Sequence[str], task: GlueTask, rejections: Rejections
) -> Iterator[Example]:
    for number, line in lines:
        try:
            yield _example(line, columns, task)
        except BrokenLineError as error:
            rejections.add(number, str(error))


def _example(line: bytes, columns: Sequence[str], task: GlueTask) -> Example:
    try:
        values = line.decode("utf-8").rstrip("\r").split("\t")
    except UnicodeDecodeError:
        raise BrokenLineError("it is not UTF-8") from None
    if len(values) != len(columns):
        raise BrokenLineError(f"it has {len(values)} values, not {len(columns)}")
    row = dict(zip(columns, values, strict=True))
    for name in (task.first, task.second):
        if name is not None and not row[name].strip():
            raise BrokenLineError(f"{name} is empty")
    second = None if task.second is None else row[task.second]
    return Example(row[task.first], second, _label(row[task.label], task))


def _label(text: str, task: GlueTask) -> float:
    if task.labels:
        if text not in task.labels:
            raise BrokenLineError(f"the label {text[:40]!r} is none of {', '.join(task.labels)}")
        return float(task.labels.index(text))
    try:
        score = float(text)
    except ValueError:
        score = math.nan
    if not math.isfinite(score):
        raise BrokenLineError(f"the score {text[:40]!r} is not a number")
    return score

"""Mistakes that are made on purpose: each is another program, and the same ones are made again."""

import ast
from pathlib import Path

import pytest

from tests.benchmarks.mutations import Mistake, mistakes


def _made(source: str, mistake: Mistake) -> str:
    return (
        source.encode()[: mistake.begin] + mistake.text.encode() + source.encode()[mistake.end :]
    ).decode()


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("ä = x < 1", ["ä = (x <= 1)", "ä = x < 2"]),
        ("x = a and not b", ["x = (a or not b)", "x = a and (b)"]),
        (
            "x: Literal[1] = f(True) + 2.5",
            ["x: Literal[1] = (f(True) - 2.5)", "x: Literal[1] = f(True) + 5.0"],
        ),
        ("f('a')", ["pass"]),
        ("x = 'a' + b", []),
    ],
)
def test_mistakes_of_a_line(tmp_path: Path, source: str, expected: list[str]) -> None:
    (tmp_path / "a.py").write_text(source, "utf-8")
    made = {_made(source, mistake) for mistake in mistakes(tmp_path, tmp_path / "a.py")}
    assert made >= set(expected)
    assert source not in made
    for text in made:
        ast.parse(text)

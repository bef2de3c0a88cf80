"""Tables of cases in text files, which need no quotes and no commas."""

from collections.abc import Iterator
from pathlib import Path


def read_cases(path: Path) -> Iterator[tuple[str, str, str]]:
    r"""Give heading, text and answer of each line "text | answer" of a file, in which \n ends a line."""
    heading = ""
    for line in path.read_text(encoding="utf-8").splitlines():
        text, bar, answer = (part.replace("\\n", "\n") for part in line.rpartition(" |"))
        if line.startswith("## "):
            heading = line[3:]
        elif bar:
            yield heading, text, answer.strip(" ")

"""A search for each line of a file."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from app.cli.main import build
from tests.app.conftest import COLLECTION, Indexed

_FILTER = ("--filter", '{"field": "view", "eq": "PA"}')


def _search(indexed: Indexed, *options: object) -> Result:
    arguments = ["search", COLLECTION, *map(str, options), "--home", str(indexed.settings.home)]
    return CliRunner().invoke(build(), arguments)


def test_each_line_has_the_page_that_it_has_alone(indexed: Indexed, tmp_path: Path) -> None:
    # U+2028 separates lines for Python alone.
    texts = ["two dogs in the snow", "a lake\u2028at night", "the heart is enlarged", "no pneumothorax"]
    file = tmp_path / "texts.txt"
    file.write_bytes(("\r\n\n".join(texts) + "\n  \n").encode())
    done = _search(indexed, "--queries", file, "-k", 5, *_FILTER)
    assert done.exit_code == 0, done.output
    pages = [json.loads(line) for line in done.stdout.strip().split("\n")]
    assert [page["text"] for page in pages] == texts
    for text, page in zip(texts, pages, strict=True):
        alone = json.loads(_search(indexed, text, "-k", 5, *_FILTER, "--json").stdout)
        assert [hit["id"] for hit in page["hits"]] == [hit["id"] for hit in alone["hits"]]
        assert [hit["found_by"] for hit in page["hits"]] == [hit["found_by"] for hit in alone["hits"]]
        for hit, other in zip(page["hits"], alone["hits"], strict=True):
            assert hit["score"] == pytest.approx(other["score"], abs=1e-5)


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (b"\n \n", (), "has no text in it"),
        (b"\xff\xfe", (), "is not text in UTF-8"),
        ("a dog\n\u200b\n".encode(), (), "line 2"),
        (b"a dog\n", ("a cat",), "each line is a whole query"),
        (b"a dog\n", ("--like", "image-1"), "each line is a whole query"),
    ],
)
def test_what_cannot_be_searched_for_is_refused_in_a_sentence(
    indexed: Indexed, tmp_path: Path, content: bytes, options: tuple[str, ...], message: str
) -> None:
    file = tmp_path / "texts.txt"
    file.write_bytes(content)
    done = _search(indexed, *options, "--queries", file)
    assert done.exit_code != 0
    said = done.stderr.replace("│", " ") + str(done.exception)
    assert message in " ".join(said.split())
    assert not done.stdout

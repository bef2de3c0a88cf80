"""Examples of a search that are given as options: the same hits as over HTTP, and what is refused."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner, Result

from app.application import create_app
from app.cli.main import build
from tests.app.conftest import COLLECTION, REPORT, Indexed
from training.common.errors import ImageError
from training.models.onnx.files import FOLDER

_LIKED = [(-1.0) ** place * place for place in range(1, 13)]
_DISLIKED = [1.0] + [0.5] * 11


def _search(indexed: Indexed, *options: object) -> Result:
    arguments = ["search", COLLECTION, *map(str, options), "--home", str(indexed.settings.home)]
    return CliRunner().invoke(build(), arguments)


def _said(done: Result) -> str:
    assert done.exit_code == 2, done.output
    return " ".join(done.stderr.replace("│", " ").split())


def _ids(page: dict[str, Any]) -> list[str]:
    return [hit["id"] for hit in page["hits"]]


def test_words_are_shown_in_the_sentence_that_has_them(indexed: Indexed) -> None:
    listed = _search(indexed, "--keywords", "pneumothorax")
    assert listed.exit_code == 0, listed.output
    assert REPORT in " ".join(listed.stdout.split())
    assert "No text has" not in listed.stderr
    partly = _search(indexed, "--keywords", "pneumothorax Zebra")
    assert "No text has the word 'Zebra'." in partly.stderr
    none = _search(indexed, "--keywords", "Zebra Élan gnu")
    assert "No text has the words 'Zebra', 'Élan' and 'gnu'." in none.stderr


def test_texts_and_vectors_find_what_they_find_over_http(indexed: Indexed, tmp_path: Path) -> None:
    liked, disliked = tmp_path / "liked.npy", tmp_path / "disliked.json"
    np.save(liked, np.array(_LIKED, dtype=np.float32))
    disliked.write_text(json.dumps(_DISLIKED))
    forms: list[tuple[list[object], dict[str, Any]]] = [
        (["--like-text", "a boat"], {"like": [{"text": "a boat"}]}),
        (
            ["a dog", "--likeness-alone", "--unlike-text", "a boat"],
            {"text": "a dog", "unlike": [{"text": "a boat"}]},
        ),
        (["--like-vector", liked], {"like": [{"vector": _LIKED}]}),
        (
            ["--like", "image-3", "--like-text", "a boat", "--like-vector", liked, "--unlike", "image-5"],
            {
                "like": [{"id": "image-3"}, {"text": "a boat"}, {"vector": _LIKED}],
                "unlike": [{"id": "image-5"}],
            },
        ),
        (
            ["a dog", "--likeness-alone", "--unlike-text", "snow", "--unlike-vector", disliked],
            {"text": "a dog", "unlike": [{"text": "snow"}, {"vector": _DISLIKED}]},
        ),
    ]
    # The service starts behind them: its log would go among their lines.
    found = [_ids(json.loads(_search(indexed, *options, "--json").stdout)) for options, _ in forms]
    with TestClient(create_app(indexed.settings), "http://localhost") as client:
        for ids, (_, query) in zip(found, forms, strict=True):
            assert ids == _ids(client.post(f"/v1/collections/{COLLECTION}/search", json=query).json()), query


def _without_graphs(indexed: Indexed) -> None:
    """Leave bundle and home as releases before the graphs have made them."""
    for folder in (indexed.bundle, *(indexed.settings.home / "bundles").glob("?" * 64)):
        shutil.rmtree(folder / FOLDER)


@pytest.mark.slow
def test_a_search_by_torch_neither_imports_nor_loads_the_encoder_of_images(own: Indexed) -> None:
    _without_graphs(own)
    script = (
        "import sys; from app.cli.main import build; build()(sys.argv[1:], standalone_mode=False); "
        "print(*sys.modules, file=sys.stderr)"
    )
    arguments = ["search", COLLECTION, "a boat", "--home", str(own.settings.home)]
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, timeout=120, check=True
    )
    assert "image-" in done.stdout
    assert "training.models.texts.towers" in done.stderr
    assert not {"transformers", "training.models.images.backbones"} & set(done.stderr.split())


@pytest.mark.slow
def test_a_search_in_an_indexed_collection_needs_no_torch(own: Indexed) -> None:
    _without_graphs(own)
    home, data = str(own.settings.home), str(own.manifest.folder)
    image = str(own.manifest.image_path(own.manifest.records[3]))
    queries = (["a boat"], ["--image", image])
    before = [_ids(json.loads(_search(own, *query, "--json").stdout)) for query in queries]
    index = ["index", COLLECTION, "--bundle", str(own.bundle), "--data", data, "--home", home]
    assert CliRunner().invoke(build(), index).exit_code == 0
    script = (
        "import sys; from app.cli.main import build; build()(sys.argv[1:], standalone_mode=False); "
        "print(*sys.modules, file=sys.stderr)"
    )
    for query, ids in zip(queries, before, strict=True):
        arguments = ["search", COLLECTION, *query, "--json", "--home", home]
        done = subprocess.run(
            [sys.executable, "-c", script, *arguments],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        assert _ids(json.loads(done.stdout)) == ids
        assert not {"torch", "transformers", "alembic"} & set(done.stderr.split())


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "it cannot be read: No such file or directory."),
        (b"", "it is neither a .npy file of numbers nor a list of numbers in JSON."),
        (b"\x93NUMPY\x01", "it is neither a .npy file of numbers nor a list of numbers in JSON."),
        (b'{"vector": [1]}', "it is neither a .npy file of numbers nor a list of numbers in JSON."),
        (b"[[1, 2], [3, 4]]", "it holds several vectors: give a file of one."),
        (b'["a"]', "number"),
        (b"[1, 2]", "The query vector has 2 numbers, the collection's have 12."),
        (json.dumps([0] * 12).encode(), "must have finite numbers that are not all zero."),
        (b"[" + b"0," * 20_000 + b"0]", "20001"),
    ],
)
def test_a_file_that_is_no_vector_is_named_with_its_option(
    indexed: Indexed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None, sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path("v").write_bytes(content)
    for option in ("--like-vector", "--unlike-vector"):
        said = _said(_search(indexed, "--like", "image-3", option, "v"))
        assert f"Invalid value for {option} v:" in said
        assert sentence in said


@pytest.mark.parametrize(
    ("options", "option"),
    [
        (["--like", "image-3", "--like-text", " "], "--like-text"),
        (["a dog", "--unlike", "image-3", "--unlike-text", "\u200b"], "--unlike-text"),
        ([part for _ in range(17) for part in ("--unlike-text", "a dog")], "--unlike"),
        ([part for _ in range(9) for part in ("--unlike-text", "a", "--like-text", "b")], "--like"),
    ],
)
def test_what_makes_no_search_is_told_with_its_option(
    indexed: Indexed, options: list[str], option: str
) -> None:
    assert f"Invalid value for {option}:" in _said(_search(indexed, *options))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["a dog", "--filter", '{"field": "id", "eq": "image-99"}'], "Nothing passes the filter."),
        (
            ["--like", "image-3", "--filter", '{"field": "id", "eq": "image-3"}'],
            "Nothing else passes the filter.",
        ),
        (["--like", "image-3", "--exclude-same-group", "split"], "Nothing is left beside what was left out."),
    ],
)
def test_where_there_are_no_hits_it_says_why(indexed: Indexed, options: list[str], sentence: str) -> None:
    done = _search(indexed, *options)
    assert done.exit_code == 0, done.output
    assert done.stdout.strip() == sentence


@pytest.mark.parametrize("content", [None, b"", b"no image"])
@pytest.mark.parametrize("option", ["--image", "--unlike-image"])
def test_a_file_is_looked_at_before_the_encoder_is_loaded(
    indexed: Indexed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str, content: bytes | None
) -> None:
    loaded: list[object] = []
    monkeypatch.setattr("training.models.encoder.load_encoder", lambda *values: loaded.append(values))
    file = tmp_path / "photo.jpg"
    if content is not None:
        file.write_bytes(content)
    done = _search(indexed, "a dog", option, file)
    assert isinstance(done.exception, ImageError)
    assert str(done.exception).startswith(f"{file}: ")
    assert not loaded


@pytest.mark.parametrize("option", ["--like-text", "--unlike-text", "--like-vector", "--unlike-vector"])
def test_lines_of_a_file_go_with_no_examples(indexed: Indexed, tmp_path: Path, option: str) -> None:
    file = tmp_path / "lines"
    file.write_text("a dog\n")
    assert "each line is a whole query" in _said(_search(indexed, "--queries", file, option, file))

"""`recoquest search`: words, examples, boxes, films and lines of a file, and what is refused."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import Result

from tests.app.commands import plain_output
from tests.app.conftest import COLLECTION, REPORT, Indexed, make_bundle, serve
from tests.app.search.test_search import SEARCH, ids, search_image
from tests.e2e.work import Work
from tests.films import Film, drawn_film, film
from tests.image_files import png, tiff
from training.common.errors import ImageError
from training.common.manifest import Record, read_manifest, write_manifest
from training.models.onnx import FOLDER

_LIKED = [(-1.0) ** place * place for place in range(1, 13)]
_DISLIKED = [1.0] + [0.5] * 11
BOX = {"x": 0.3, "y": 0.1, "width": 0.25, "height": 0.5}
GIVEN = "0.3,0.1,0.25,0.5"


def _search(indexed: Indexed, *options: object, code: int = 0) -> Result:
    return indexed.run("search", COLLECTION, *options, code=code)


def _page(indexed: Indexed, *options: object) -> dict[str, Any]:
    page: dict[str, Any] = json.loads(_search(indexed, *options, "--json").stdout)
    return page


def test_words_are_shown_in_the_sentence_that_has_them(indexed: Indexed) -> None:
    listed = _search(indexed, "--keywords", "pneumothorax")
    assert REPORT in " ".join(listed.stdout.split())
    assert "No text has" not in listed.stderr
    partly = _search(indexed, "--keywords", "pneumothorax Zebra")
    assert "No text has the word 'Zebra'." in partly.stderr
    none = _search(indexed, "--keywords", "Zebra Élan gnu")
    assert "No text has the words 'Zebra', 'Élan' and 'gnu'." in none.stderr


@pytest.mark.slow
def test_words_examples_and_vectors_find_what_they_find_over_http(indexed: Indexed, tmp_path: Path) -> None:
    liked, disliked = tmp_path / "liked.npy", tmp_path / "disliked.json"
    np.save(liked, np.array(_LIKED, dtype=np.float32))
    disliked.write_text(json.dumps(_DISLIKED))
    many = " ".join(f"word{n}" for n in range(70))
    forms: list[tuple[list[object], dict[str, Any]]] = [
        (["pneumothorax"], {"text": "pneumothorax", "keywords": "pneumothorax"}),
        (["pneumothorax", "--likeness-alone"], {"text": "pneumothorax"}),
        (["a dog", "--keywords", "pneumothorax"], {"text": "a dog", "keywords": "pneumothorax"}),
        (
            ["a dog", "--text", "pneumothorax"],
            {"text": "a dog", "like": [{"text": "pneumothorax"}], "keywords": "a dog pneumothorax"},
        ),
        (["?!"], {"text": "?!"}),
        ([many], {"text": many}),
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
        (
            ["--like", "image-3", "--box", GIVEN, "-k", 24],
            {"like": [{"id": "image-3", "box": BOX}], "limit": 24},
        ),
    ]
    # The service starts behind them: its log would go among their lines.
    results = [_hits(_page(indexed, *options)) for options, _ in forms]
    with serve(indexed, key=False) as client:
        for hits, (_, query) in zip(results, forms, strict=True):
            assert hits == _hits(client.post(SEARCH, json=query).json()), query


def _without_graphs(indexed: Indexed) -> None:
    """Leave bundle and home as releases before the graphs have made them."""
    for folder in (indexed.bundle, *(indexed.settings.home / "bundles").glob("?" * 64)):
        shutil.rmtree(folder / FOLDER)


def _in_a_process(own: Indexed, *options: str) -> tuple[str, set[str]]:
    """What a search prints in a process of its own, and the modules that it imports."""
    script = (
        "import sys; from app.cli.main import build; build()(sys.argv[1:], standalone_mode=False); "
        "print(*sys.modules, file=sys.stderr)"
    )
    words = ["search", COLLECTION, *options, "--home", str(own.settings.home)]
    done = subprocess.run(
        [sys.executable, "-c", script, *words], capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout, set(done.stderr.split())


@pytest.mark.slow
def test_a_search_by_torch_neither_imports_nor_loads_the_encoder_of_images(own: Indexed) -> None:
    _without_graphs(own)
    result, imported = _in_a_process(own, "a boat")
    assert "image-" in result
    assert "training.models.text_towers" in imported
    assert not {"transformers", "training.models.transformers_backbones"} & imported


@pytest.mark.slow
def test_a_search_in_an_indexed_collection_needs_no_torch(own: Indexed) -> None:
    _without_graphs(own)
    image = str(own.manifest.image_path(own.manifest.records[3]))
    queries = (["a boat"], ["--image", image])
    before = [ids(_page(own, *query)) for query in queries]
    own.run("index", COLLECTION, "--bundle", own.bundle, "--data", own.manifest.folder)
    for query, expected in zip(queries, before, strict=True):
        result, imported = _in_a_process(own, *query, "--json")
        assert ids(json.loads(result)) == expected
        assert not {"torch", "transformers", "alembic"} & imported


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
        message = plain_output(_search(indexed, "--like", "image-3", option, "v", code=2))
        assert f"Invalid value for {option} v:" in message
        assert sentence in message


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--like", "image-3", "--like-text", " "], "Invalid value for --like-text:"),
        (["a dog", "--unlike", "image-3", "--unlike-text", "\u200b"], "Invalid value for --unlike-text:"),
        (["--unlike-text", "a dog"] * 17, "Invalid value for --unlike:"),
        (["--unlike-text", "a", "--like-text", "b"] * 9, "Invalid value for --like:"),
        (["--like", "image-3", "--box", "0.1,0.2"], "'0.1,0.2' is not x,y,width,height"),
        (["--like", "image-3", "--box", "0.9,0.2,0.3,0.3"], "reaches beyond the picture"),
        (["--like", "image-3", "--box", "0.1,0.2,0.001,0.3"], "0.01"),
        (["--like", "image-3", "--box", "nan,0.2,0.3,0.3"], "--box"),
        (["--like", "image-0", "--box", "0,0,0.05,1"], "The model sees of this picture only x from"),
        (["--like", "image-3", "--box", GIVEN, "--box", GIVEN], "2 boxes for 1 images"),
        (["a dog", "--box", GIVEN], "1 boxes for 0 images"),
        (["--keywords", "boat", "--map", "image-5"], "give a text, an image or an example"),
        *(
            (["--queries", "lines", *more], "each line is a whole query")
            for more in (
                ["a cat"], ["--like", "image-1"], ["--like-text", "lines"], ["--unlike-text", "lines"],
                ["--like-vector", "lines"], ["--unlike-vector", "lines"], ["--box", GIVEN],
            )
        ),
    ],
)  # fmt: skip
def test_what_makes_no_search_is_told_in_a_sentence(
    indexed: Indexed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("lines").write_text("a dog\n")
    assert sentence in plain_output(_search(indexed, *options, code=2))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["a dog", "--filter", '{"field": "id", "eq": "image-99"}'], "Nothing passes the filter."),
        (
            ["--like", "image-3", "--filter", '{"field": "id", "eq": "image-3"}'],
            "Nothing else passes the filter.",
        ),
        (
            ["--like", "image-3", "--exclude-same-group", "split"],
            "There are no images other than the excluded ones.",
        ),
    ],
)
def test_where_there_are_no_hits_it_says_why(indexed: Indexed, options: list[str], sentence: str) -> None:
    assert _search(indexed, *options).stdout.strip() == sentence


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
    with pytest.raises(ImageError, match=f"^{file}: "):
        _search(indexed, "a dog", option, file)
    assert not loaded


_QUERIES = [f"{name}{form}" for name in ("marker", "pixel") for form in (".png", ".tif", "-rgb.png")]


def _write(path: Path, drawn: Film) -> None:
    path.write_bytes(png(drawn[..., None], 16))


@pytest.fixture(scope="module", params=[40, pytest.param(200, marks=pytest.mark.slow)])
def work(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Work:
    """Indexed films, and one of them with a marker or a single bright pixel, in several forms of files."""
    folder = tmp_path_factory.mktemp("films")
    # Weights that see the tissue: those of other numbers tell films by their mean.
    make_bundle(folder / "tiny", seed=1)
    data = folder / "data"
    data.mkdir()
    plain = film()
    _write(data / "plain.png", plain)
    for seed in range(request.param):
        _write(data / f"{seed}.png", drawn_film(seed))
    names = ["plain", *map(str, range(request.param))]
    write_manifest(data, [Record(id=name, image=f"{name}.png", split="test") for name in names])
    assert len(read_manifest(data).records) == request.param + 1
    work = Work(folder)
    work.run("index", "films", "--bundle", "tiny", "--data", "data")
    marker, pixel = plain.copy(), plain.copy()
    marker[4:20, 4:40] = 65_535
    pixel[0, 0] = 65_535
    for name, marked in (("marker", marker), ("pixel", pixel)):
        _write(folder / f"{name}.png", marked)
        (folder / f"{name}.tif").write_bytes(tiff(marked[..., None]))
        (folder / f"{name}-rgb.png").write_bytes(png(marked[..., None].repeat(3, axis=-1), 16))
    return work


@pytest.mark.parametrize("query", _QUERIES)
def test_a_film_with_a_marker_finds_the_film_without_it_first(work: Work, query: str) -> None:
    output = json.loads(work.run("search", "films", "--image", query, "-k", "3", "--json").stdout)
    assert output["hits"][0]["id"] == "plain"


_FILTER = ("--filter", '{"field": "view", "eq": "PA"}')


@pytest.mark.parametrize("options", [(), ("--likeness-alone",)])
def test_each_line_has_the_page_that_it_has_alone(
    indexed: Indexed, tmp_path: Path, options: tuple[str, ...]
) -> None:
    # U+2028 separates lines for Python alone.
    texts = ["two dogs in the snow", "a lake\u2028at night", "the heart is enlarged", "no pneumothorax"]
    file = tmp_path / "texts.txt"
    file.write_bytes(("\r\n\n".join(texts) + "\n  \n").encode())
    done = _search(indexed, "--queries", file, "-k", 5, *_FILTER, *options)
    pages = [json.loads(line) for line in done.stdout.strip().split("\n")]
    assert [page["text"] for page in pages] == texts
    for text, page in zip(texts, pages, strict=True):
        alone = _page(indexed, text, "-k", 5, *_FILTER, *options)
        assert _hits(page) == _hits(alone)
        for hit, other in zip(page["hits"], alone["hits"], strict=True):
            assert hit["score"] == pytest.approx(other["score"], abs=1e-5)


@pytest.mark.parametrize(
    ("content", "code", "message"),
    [
        (b"\n \n", 1, "has no text in it"),
        (b"\xff\xfe", 1, "is not text in UTF-8"),
        ("a dog\n\u200b\n".encode(), 2, "line 2"),
    ],
)
def test_lines_that_cannot_be_searched_for_are_refused_in_a_sentence(
    indexed: Indexed, tmp_path: Path, content: bytes, code: int, message: str
) -> None:
    file = tmp_path / "texts.txt"
    file.write_bytes(content)
    done = _search(indexed, "--queries", file, code=code)
    assert message in plain_output(done)
    assert not done.stdout


def test_a_box_of_a_file_finds_what_it_finds_over_http(indexed: Indexed) -> None:
    file = indexed.manifest.image_path(indexed.manifest.records[3])
    result = _page(indexed, "a boat", "--likeness-alone", "--image", file, "--box", GIVEN, "-k", 24)
    sent = {"text": "a boat", "image_boxes": [BOX], "limit": 24}
    with serve(indexed, key=False) as client:
        assert ids(result) == ids(search_image(client, file.read_bytes(), **sent).json())


def test_a_map_is_that_of_http(indexed: Indexed) -> None:
    options = ("a boat", "--like", "image-3", "--box", GIVEN, "--map", "image-5")
    printed = json.loads(_search(indexed, *options).stdout)
    with serve(indexed, key=False) as client:
        address = f"/v1/collections/{COLLECTION}/images/image-5/similarity-map"
        query = {"text": "a boat", "like": [{"id": "image-3", "box": BOX}]}
        answered = client.post(address, json=query).json()
    assert printed.keys() == answered.keys()
    assert printed["cosine"] == pytest.approx(answered["cosine"], abs=1e-4)
    for row, other in zip(printed["values"], answered["values"], strict=True):
        assert row == pytest.approx(other, abs=1e-4)


WORDLESS = "wordless"


@pytest.fixture
def without_texts(own: Indexed) -> Indexed:
    """The same images in another collection, without a text."""
    bare = tuple(replace(record, texts=(), report=None) for record in own.manifest.records)
    replace(own, manifest=replace(own.manifest, records=bare)).index(WORDLESS, own.bundle)
    return own


def _hits(page: dict[str, Any]) -> list[tuple[str, list[str]]]:
    return [(hit["id"], hit["found_by"]) for hit in page["hits"]]


def test_a_collection_without_texts_is_searched_by_likeness(without_texts: Indexed) -> None:
    page = json.loads(without_texts.run("search", WORDLESS, "pneumothorax", "--json").stdout)
    assert {hit["score_kind"] for hit in page["hits"]} == {"cosine"}
    assert "unknown_keywords" not in page or not page["unknown_keywords"]

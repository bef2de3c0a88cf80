"""`recoquest search --box`: the same hits as over HTTP, and what is refused."""

import json
from typing import Any

import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner, Result

from app.application import create_app
from app.cli.main import build
from tests.app.conftest import COLLECTION, Indexed

BOX = {"x": 0.3, "y": 0.1, "width": 0.25, "height": 0.5}
GIVEN = "0.3,0.1,0.25,0.5"


def _search(indexed: Indexed, *options: str) -> Result:
    return CliRunner().invoke(build(), ["search", COLLECTION, *options, "--home", str(indexed.settings.home)])


def _ids(page: dict[str, Any]) -> list[str]:
    return [hit["id"] for hit in page["hits"]]


def test_a_box_finds_what_it_finds_over_http(indexed: Indexed) -> None:
    file = indexed.manifest.image_path(indexed.manifest.records[3])
    by_id = json.loads(_search(indexed, "--like", "image-3", "--box", GIVEN, "-k", "24", "--json").stdout)
    by_file = json.loads(
        _search(
            indexed, "a boat", "--likeness-alone", "--image", str(file), "--box", GIVEN, "-k", "24", "--json"
        ).stdout
    )
    with TestClient(create_app(indexed.settings), "http://localhost") as client:
        address = f"/v1/collections/{COLLECTION}/search"
        stored = {"like": [{"id": "image-3", "box": BOX}], "limit": 24}
        assert _ids(by_id) == _ids(client.post(address, json=stored).json())
        sent = {"text": "a boat", "image_boxes": [BOX], "limit": 24}
        answer = client.post(address, files={"image": file.read_bytes()}, data={"query": json.dumps(sent)})
        assert _ids(by_file) == _ids(answer.json())


def test_a_map_is_that_of_http(indexed: Indexed) -> None:
    options = ("a boat", "--like", "image-3", "--box", GIVEN, "--map", "image-5")
    printed = json.loads(_search(indexed, *options).stdout)
    with TestClient(create_app(indexed.settings), "http://localhost") as client:
        address = f"/v1/collections/{COLLECTION}/images/image-5/similarity-map"
        query = {"text": "a boat", "like": [{"id": "image-3", "box": BOX}]}
        answered = client.post(address, json=query).json()
    assert printed.keys() == answered.keys()
    assert printed["cosine"] == pytest.approx(answered["cosine"], abs=1e-4)
    for row, other in zip(printed["values"], answered["values"], strict=True):
        assert row == pytest.approx(other, abs=1e-4)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--like", "image-3", "--box", "0.1,0.2"), "'0.1,0.2' is not x,y,width,height"),
        (("--like", "image-3", "--box", "0.9,0.2,0.3,0.3"), "reaches beyond the picture"),
        (("--like", "image-3", "--box", "0.1,0.2,0.001,0.3"), "0.01"),
        (("--like", "image-3", "--box", "nan,0.2,0.3,0.3"), "--box"),
        (("--like", "image-0", "--box", "0,0,0.05,1"), "The model sees of this picture only x from"),
        (("--like", "image-3", "--box", GIVEN, "--box", GIVEN), "2 boxes for 1 images"),
        (("a dog", "--box", GIVEN), "1 boxes for 0 images"),
        (("--queries", "none.txt", "--box", GIVEN), "each line is a whole query"),
        (("--keywords", "boat", "--map", "image-5"), "give a text, an image or an example"),
    ],
)
def test_a_box_that_is_none_is_refused_in_one_sentence(
    indexed: Indexed, options: tuple[str, ...], sentence: str
) -> None:
    done = _search(indexed, *options)
    assert done.exit_code == 2, done.output
    assert sentence in " ".join(done.stderr.replace("│", " ").split())

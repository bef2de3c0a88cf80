"""Parts of files, as RFC 9110 has them."""

import random

import pytest
from fastapi.testclient import TestClient

from tests.app.conftest import COLLECTION, Indexed
from tests.app.search.test_search import problem

_CONTENT = f"/v1/collections/{COLLECTION}/images/image-1/content"
_PATHS = (_CONTENT, "/page/search/page.js", "/")


@pytest.mark.parametrize("path", _PATHS)
def test_a_part_of_a_file_is_answered(client: TestClient, path: str) -> None:
    whole = client.get(path).content
    for text, part in (
        ("bytes=0-9", whole[:10]),
        ("BYTES=5-", whole[5:]),
        ("bytes=-7", whole[-7:]),
        (f"bytes=2-{10**17}", whole[2:]),
        (f"bytes=-{10**17}", whole),
        ("bytes= 0-0 ,", whole[:1]),
        (f"bytes=0-4,{10**9}-", whole[:5]),
    ):
        answer = client.get(path, headers={"range": text})
        assert (answer.status_code, answer.content) == (206, part), text
        assert answer.headers["content-range"].endswith(f"/{len(whole)}")


@pytest.mark.parametrize("path", _PATHS)
@pytest.mark.parametrize(
    "text",
    ["", "bytes", "bytes=", "bytes=-", "bytes=,", "bytes=a-b", "bytes=5-2", "bytes=0-1,x", "bytes=0-1,5-2",
     "items=0-1", "bytes=0", "bytes=--1", "bytes=1-2-3", "bytes=0x1-0x2", "bytes=\u0661-\u0662",
     "bytes=1 - 2", "bytes=" + ",".join("0-0" for _ in range(9)), "bytes=" + "9" * 5_000 + "-",
     "bytes=" + "," * 50_000],
)  # fmt: skip
def test_a_range_without_sense_is_ignored(client: TestClient, path: str, text: str) -> None:
    whole = client.get(path)
    answer = client.get(path, headers={b"Range": text.encode("utf-8")})
    assert (answer.status_code, answer.content) == (200, whole.content)


@pytest.mark.parametrize("path", _PATHS)
@pytest.mark.parametrize("text", ["bytes=1000000-", "bytes=-0", "bytes=1000000-1000001,2000000-"])
def test_a_part_outside_of_a_file_is_a_problem(client: TestClient, path: str, text: str) -> None:
    size = len(client.get(path).content)
    answer = client.get(path, headers={"range": text})
    document = problem(answer, 416, "range-not-satisfiable")
    assert answer.headers["content-range"] == f"bytes */{size}"
    assert f"{size:,} bytes" in document["detail"]


def test_several_parts_are_bounded_in_number(client: TestClient) -> None:
    answer = client.get(_CONTENT, headers={"range": "bytes=0-0,2-2,4-4,6-6,8-8,10-10,12-12,14-14"})
    assert answer.status_code == 206
    assert answer.headers["content-type"].startswith("multipart/byteranges")
    assert len(answer.content) == int(answer.headers["content-length"])


def test_a_part_of_another_version_is_the_whole(client: TestClient) -> None:
    whole = client.get(_CONTENT)
    for tag, status in ((whole.headers["etag"], 206), ('"other"', 200), ("W/" + whole.headers["etag"], 200)):
        assert client.get(_CONTENT, headers={"range": "bytes=0-1", "if-range": tag}).status_code == status


def test_only_get_has_parts(client: TestClient) -> None:
    head = client.head(_CONTENT, headers={"range": "bytes=0-1"})
    assert (head.status_code, "content-range" in head.headers) == (200, False)
    assert client.head(_CONTENT, headers={"range": "bytes=1000000-"}).status_code == 200
    assert client.get("/v1/collections", headers={"range": "bytes=0-1"}).status_code == 200
    two = client.get(_CONTENT, headers=[("range", "bytes=0-1"), ("range", "bytes=3-4")])
    assert two.status_code == 200


def test_no_range_is_answered_with_a_defect(client: TestClient, indexed: Indexed) -> None:
    draw = random.Random(24)
    pieces = ("bytes", "=", "-", ",", " ", "0", "1", "7", "99999999", "\t", "a", "*", "/", ";", "\x80")
    whole = indexed.image_bytes(1)
    for _ in range(300):
        tail = "".join(draw.choices(pieces, k=draw.randrange(12)))
        answer = client.get(_CONTENT, headers={b"Range": f"bytes={tail}".encode("latin-1")})
        assert answer.status_code in (200, 206, 416), tail
        if answer.status_code == 200:
            assert answer.content == whole

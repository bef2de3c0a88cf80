"""Bodies, queries and filters at the edges of their limits and beyond."""

import json
import random
from collections.abc import Iterator
from typing import Any, Final

from tests.hostile.case import COLLECTION, SEARCH, Case, form, json_search, raw_search, request

_LONG: Final = 200_000
_CONDITIONS: Final = 256
_SURROGATE: Final = "\ud800"


def hostile_bodies(draw: random.Random) -> Iterator[Case]:
    """Cases without end: searches, forms and changes."""
    while True:
        for number, document in enumerate(_documents(draw)):
            yield Case(f"query {number}", (json_search(document),))
        for number, body in enumerate(_no_json(draw)):
            yield Case(f"no JSON {number}", (raw_search(body),))
        yield from _forms(draw)
        yield from _changes(draw)


def hostile_filters(draw: random.Random) -> Iterator[Case]:
    """Cases without end: filters that are large, deep, or about nothing."""
    while True:
        for number, filter in enumerate(_filters(draw)):
            document = {"text": "a dog", "limit": draw.choice((1, 10, 100)), "filter": filter}
            yield Case(f"filter {number}", (json_search(document),))


def _documents(draw: random.Random) -> list[Any]:
    return [
        {"text": "a" * draw.randint(9_000, _LONG)},
        {"text": _SURROGATE},
        {"text": "\0" * draw.randint(1, 9_999)},
        {"text": "ǅ̈" * draw.randint(1, 4_000)},
        {"text": "a dog", "limit": 10 ** draw.randint(3, 400)},
        {"text": "a dog", "limit": draw.choice((-1, 0.5, "1", None, [], True))},
        {"keywords": " ".join(f"w{n}" for n in range(draw.randint(10, 2_000)))},
        {"keywords": '"' * draw.randint(1, 9_999)},
        {"keywords": "* OR NEAR(" * draw.randint(1, 900)},
        {"text": "a dog", "cursor": draw.choice(("", "!", "A" * 10_000, "eyJhIjoxfQ==", _SURROGATE))},
        {"like": [{"id": f"image-{n}"} for n in range(draw.randint(1, 500))]},
        {"like": [{"vector": [draw.choice((1e308, 0.0, -1.0))] * draw.choice((12, 13, 100_000))}]},
        {"like": [{"id": draw.choice((_SURROGATE, "\0", "../../etc/passwd", "a" * _LONG))}]},
        {"text": "a dog", "group_by": draw.choice(("", "nothing", "a" * _LONG, _SURROGATE, "metadata"))},
        {f"field {n}": n for n in range(draw.randint(1, 20_000))},
        [{"text": "a"}] * draw.randint(1, 1_000),
        draw.choice(("a dog", 1, None, True, 1e308)),
        {"text": {"text": {"text": "a"}}},
    ]


def _no_json(draw: random.Random) -> list[bytes]:
    return [
        b"[" * draw.randint(1_000, 900_000),
        b'{"a":' * draw.randint(1_000, 180_000),
        b'{"text": ' + b"1" * draw.randint(5_000, 900_000) + b"}",
        b'{"text": 1e' + b"9" * draw.randint(1, 5_000) + b"}",
        b'{"text": NaN}',
        b'\xef\xbb\xbf{"text": "a"}',
        '{"text": "a"}'.encode("utf-16"),
        b'{"text": "\xff\xfe"}',
        b'{"text": "a", "text": "b"}' * 2,
        b"",
        b'{"text": "' + b"\\u0000" * draw.randint(1, 100_000) + b'"}',
        draw.randbytes(draw.randint(1, 900_000)),
        b"0" * (1 << 20) + b"0",
    ]


def _forms(draw: random.Random) -> Iterator[Case]:
    many = [("image", b"x")] * draw.randint(2, 3_000)
    texts = {f"query{n}": "{}" for n in range(draw.randint(2, 3_000))}
    for name, (body, content_type) in {
        "many files": form(many),
        "many texts": form([], texts),
        "a long text": form([], {"query": " " * (2 << 20)}),
        "a text for an image": form([], {"image": "x"}),
        "no file": form([("image", b"")]),
        "a name with a null": form([("image\0", b"x")]),
        "a lone surrogate": form([("image", b"x")], {"query": json.dumps({"text": _SURROGATE})}),
    }.items():
        yield Case(f"form with {name}", (raw_search(body, content_type),))
    body, content_type = form([("image", bytes(1_000))])
    yield Case("a form that breaks off", (raw_search(body[:-40], content_type),))
    head = b'--x\r\nContent-Disposition: form-data; name="' + b"a" * draw.randint(1_000, 2 << 20)
    yield Case("an endless name of a part", (raw_search(head, "multipart/form-data; boundary=x"),))
    boundaries = b"--x\r\n" * draw.randint(1_000, 400_000)
    yield Case("boundaries alone", (raw_search(boundaries, "multipart/form-data; boundary=x"),))
    promised = {"Content-Type": content_type, "Content-Length": str(24 << 20)}
    yield Case("leaves in its form", (request("POST", SEARCH, body, promised),), leave=True)


def _changes(draw: random.Random) -> Iterator[Case]:
    image = f"/v1/collections/{COLLECTION}/images/image-{draw.randint(0, 6)}"
    documents: list[Any] = [
        {"texts": ["a dog", _SURROGATE]},
        {"texts": ["a"] * draw.randint(1, 20_000)},
        {"labels": ["\0"] * draw.randint(1, 5_000)},
        {"metadata": {_SURROGATE: 1}},
        {"metadata": {f"f{n}": n for n in range(draw.randint(1, 20_000))}},
        {"group": "g" * _LONG},
        {"split": draw.choice((1, "", "x" * _LONG))},
        {f"unknown {n}": 1 for n in range(draw.randint(1, 20_000))},
    ]
    kind = {"Content-Type": "application/json"}
    for number, document in enumerate(documents):
        body = json.dumps(document).encode()
        yield Case(f"change {number}", (request("PATCH", image, body, kind),))
    for path in (
        f"{SEARCH}/%00",
        "/v1/collections/%ff/search",
        "/v1/collections/" + "a" * 7_000,
        "/page/..%2f..%2f",
    ):
        yield Case(f"path {path[:30]!r}", (request("GET", path),), closes=True)


def _filters(draw: random.Random) -> list[Any]:
    ages = [
        {"field": "age", "gte": draw.uniform(-9, 20), "lt": draw.uniform(30, 99)} for _ in range(_CONDITIONS)
    ]
    deep: Any = {"field": "view", "eq": "PA"}
    for _ in range(draw.choice((5, 15, 31, 200))):
        deep = {"not": deep} if draw.random() < 0.7 else {"and": [deep]}
    return [
        {"and": ages},
        {"or": ages},
        {"not": {"and": [{"not": age} for age in ages]}},
        {"and": [{"or": ages[n : n + 16]} for n in range(0, _CONDITIONS, 16)]},
        {"and": [{"field": "id", "gte": f"image-{n}"} for n in range(_CONDITIONS)]},
        {"field": "age", "any_of": [draw.uniform(0, 99) for _ in range(draw.choice((1_000, 4_096, 5_000)))]},
        {"field": "id", "any_of": [f"image-{n}" for n in range(draw.choice((1_000, 4_096, 5_000)))]},
        deep,
        {"field": draw.choice(("nothing", "", _SURROGATE, "a" * 10_000, "\0")), "eq": 1},
        {"field": "age", "eq": draw.choice((1e308, -0.0, "65", True, None, [], 10**400))},
        {"field": "age", "gte": draw.choice((1e400, float("nan"), "a", None))},
        draw.choice(([], {}, "age > 1", 1, None, {"and": None}, {"and": [[]]}, {"or": {}})),
        {f"k{n}": n for n in range(draw.randint(1, 4_000))},
    ]

"""Errors are reported in the service's sentences, and every kind of problem is explained."""

import ast
import json
import re
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, get_args

import pytest
from fastapi.dependencies.models import Dependant
from fastapi.testclient import TestClient
from pydantic import TypeAdapter, ValidationError
from pydantic_core.core_schema import ErrorType

from app.application import create_app
from app.edge.problems import FRAMEWORK_KINDS, KINDS, FieldError, describe_errors, field_errors, sentence
from app.embeddings import EmbeddingsQuery
from app.images.schemas import ImageWords, NewImage
from app.page_routes import SOURCE
from app.search.schemas import SearchQuery
from app.settings import PREFIX, Settings
from index.errors import FilterError, UnknownCollectionError, listed
from index.filters.grammar import parse_filter
from tests.access import AS_ADMIN, routes_of
from tests.app.conftest import COLLECTION, Indexed, serve

_IMAGES = f"/v1/collections/{COLLECTION}/images"
_SEARCH = f"/v1/collections/{COLLECTION}/search"
_FEEDBACK = f"/v1/collections/{COLLECTION}/feedback"
_MANY = {f"f{number}": 1 for number in range(5_000)}


@pytest.fixture
def local(client: TestClient) -> TestClient:
    """Who may write to the shared collection."""
    return TestClient(client.app, base_url="http://127.0.0.1", client=("127.0.0.1", 50_000), headers=AS_ADMIN)


def _told(answer: Any, field: str, sentence: str) -> None:
    assert answer.status_code == 422, answer.text[:1000]
    assert len(answer.content) < 2_000
    document = answer.json()
    assert [error["field"] for error in document["errors"]] == [field]
    assert document["detail"] == f"{field}: {document['errors'][0]['message']}"
    assert sentence in document["detail"]


@pytest.mark.parametrize(
    ("method", "path", "body", "field", "sentence"),
    [
        ("POST", _SEARCH, {"like": [{"vector": [""] * 20_000}]}, "like.0.vector.0", "number"),
        ("POST", _SEARCH, {"like": [{"vector": [None] * 20_000}]}, "like.0.vector.0", "number"),
        ("POST", _SEARCH, {"like": [{"vector": [1] * 20_000}]}, "like.0.vector", "20000 are too many"),
        ("POST", _SEARCH, {"like": [{"id": 1}] * 5_000}, "like.0.id", "a text"),
        ("POST", _SEARCH, {"like": [{"id": "a"}] * 5_000}, "like", "at most 16"),
        ("POST", _SEARCH, _MANY, "f0", "unknown; the fields are text, like, unlike, keywords"),
        ("POST", _SEARCH, {"like": [_MANY]}, "like.0.f0", "the fields are id, text, vector, box."),
        ("POST", _SEARCH, {"x" * 5_000: 1}, f"{'x' * 80}...", "unknown"),
        ("POST", _FEEDBACK, _MANY, "f0", "the fields are query, hit, relevant, missed."),
        ("PATCH", f"{_IMAGES}/image-1", {"texts": [1] * 20_000}, "texts.0", "a text"),
        ("PATCH", f"{_IMAGES}/image-1", {"labels": ["a"] * 20_000}, "labels", "at most 1024"),
        ("PATCH", f"{_IMAGES}/image-1", {"metadata": _MANY}, "metadata", "5000 fields are too many"),
        ("POST", "/v1/jobs", {"kind": "tidy", **_MANY}, "tidy.f0", "the fields are kind."),
        ("POST", "/v1/jobs", {"kind": "x" * 5_000}, "body", "must be one of 'tidy', 'reindex', "),
        ("POST", "/v1/models", _MANY, "f0", "the fields are job."),
        (
            "POST",
            f"/v1/collections/{COLLECTION}/erase",
            {"ids": []},
            "ids",
            "0 are too few; send at least 1.",
        ),
    ],
)
def test_however_much_is_wrong_one_sentence_tells_of_it(
    local: TestClient, method: str, path: str, body: dict[str, Any], field: str, sentence: str
) -> None:
    _told(local.request(method, path, json=body), field, sentence)


def test_as_many_records_as_fit_into_a_form_are_told_in_one_sentence(local: TestClient) -> None:
    files = {"image": ("a.png", b"x")}
    for record in ("{}", '{"id": "a"}'):
        answer = local.post(_IMAGES, files=files, data={"records": f"[{','.join([record] * 20_000)}]"})
        assert answer.status_code == 422
        assert len(answer.content) < 2_000


def test_the_first_of_many_wrong_fields_are_told() -> None:
    results = [
        {"type": "missing", "loc": ("body", f"f{number}"), "msg": "Field required"} for number in range(1_010)
    ]
    errors = field_errors(results)
    assert errors[0] == FieldError(field="f0", message="It is missing.")
    assert len(errors) == 8
    messages = describe_errors(errors, more=1_002)
    assert messages.endswith("f6: It is missing; f7: It is missing; and 1,002 more.")
    # A deeply nested one has a short name.
    results = [{"type": "value_error", "loc": ("body", *["x" * 90] * 50), "msg": "y" * 10_000}] * 20
    (error, *others) = field_errors(results)
    assert len(others) == 7
    assert len(error.field) < 500
    assert len(error.message) < 500


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ({"text": "  "}, "text: There is nothing in it."),
        ({"text": "\u200b"}, "text: There is nothing in it."),
        ({"text": 3}, "text: It must be a text."),
        ({"text": "x", "limit": 0}, "limit: It must be at least 1."),
        (
            {"text": "x", "limit": 1001, "diversity": "1"},
            "diversity: It must be a number; limit: It must be at most 1000.",
        ),
        ({"text": "x", "limit": 1.5}, "limit: It must be a whole number."),
        ({"text": "x", "target": "reports"}, "target: It must be 'images' or 'texts'."),
        ({"like": {}}, "like: It must be a list."),
        ({"like": [3]}, "like.0: It must be a JSON object."),
        ({"text": "x", "filter": 3}, "filter: It must be a JSON object."),
        (
            {"text": "x", "cursor": "x" * 100_000},
            "cursor: It must be true, false or `next_cursor` of the page before.",
        ),
    ],
)
def test_a_wrong_field_is_told_in_words_of_people(
    client: TestClient, query: dict[str, Any], sentence: str
) -> None:
    assert client.post(_SEARCH, json=query).json()["detail"] == sentence


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (_SEARCH, {"like": [{"id": "x" * 100_000}]}),
        (_SEARCH, {"text": "x", "filter": {"field": "x" * 1_000, "eq": 1}}),
        (_SEARCH, {"text": "x", "filter": {"field": "view", "eq": 1, "x" * 5_000: 1}}),
        ("/v1/collections", {"name": "x" * 100_000, "same_model_as": COLLECTION}),
        ("/v1/collections", {"name": "new", "same_model_as": "x" * 100_000}),
        ("/v1/collections", {"name": "new", "model": "x" * 100_000}),
        ("/v1/jobs", {"kind": "retrain", "collection": "x" * 100_000}),
    ],
)
def test_a_long_name_is_not_repeated_whole(
    client: TestClient, local: TestClient, path: str, body: dict[str, Any]
) -> None:
    answer = (client if path == _SEARCH else local).post(path, json=body)
    assert answer.status_code in (404, 422)
    assert f"{'x' * 80}..." in answer.json()["detail"]
    assert len(answer.content) < 2_000


def test_however_many_fields_a_collection_has_few_are_listed(own: Indexed) -> None:
    with serve(own) as client:
        for number in range(3):
            named = {f"{number}-{field}-{'x' * 200}": field for field in range(1_000)}
            changed = client.patch(f"{_IMAGES}/image-{number}", json={"metadata": named})
            assert changed.status_code == 200, changed.text
        for query in ({"filter": {"field": "0-x", "eq": 1}}, {"group_by": "0-x"}):
            answer = client.post(_SEARCH, json={"text": "dogs", **query})
            assert answer.status_code == 422
            assert "and 2,9" in answer.json()["detail"]
            assert len(answer.content) < 6_000
        # Not a slip for any of them, and long enough for seconds of comparing.
        odd = client.post(_SEARCH, json={"text": "dogs", "filter": {"field": "x" * 990, "eq": 1}})
        assert "Did you mean" not in odd.json()["detail"]
        near = client.post(_SEARCH, json={"text": "dogs", "filter": {"field": "viev", "eq": 1}})
        assert "Did you mean 'view'?" in near.json()["detail"]


def test_however_many_collections_there_are_few_are_listed() -> None:
    names = [f"collection-{number}" for number in range(5_000)]
    message = str(UnknownCollectionError("none", names))
    assert message.endswith("collection-19, and 4,980 more.")
    assert listed(names[:2]) == "collection-0, collection-1"
    assert listed(["x" * 100, "\ud800"]) == f"{'x' * 80}..., ?"


APP = Path(__file__).parents[3] / "app"
SECTIONS = re.findall(r"^## (.+)\n\n\*\*(\d{3})\.\*\* (.+)", SOURCE.read_text(encoding="utf-8"), re.MULTILINE)


def _written() -> Iterator[tuple[str, int]]:
    """Give the name of every kind that the code makes, and the seconds of its Retry-After."""
    for path in APP.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Kind":
                first = node.args[0] if node.args else None
                # Other classes have this name too: kinds of jobs, with options of commands.
                if isinstance(first, ast.Constant) and re.fullmatch(r"[a-z][a-z-]+", str(first.value)):
                    retry = [one.value for one in node.keywords if one.arg == "retry_after_s"]
                    yield str(first.value), sum(map(ast.literal_eval, retry))


def test_every_kind_has_a_section_and_every_section_a_kind() -> None:
    text = SOURCE.read_text(encoding="utf-8")
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert [slug for slug, _, _ in SECTIONS] == headings == sorted(set(headings))
    written = set(_written())
    assert set(headings) == {slug for slug, _ in written}
    paused = {after: " ".join(sorted(slug for slug, s in written if s == after)) for _, after in written}
    assert {after: slugs for after, slugs in paused.items() if after} == {
        1: "archive-busy changed-meanwhile decoding-unavailable encoder-replaced not-ready "
        "request-in-progress too-many-connections too-many-requests",
        2: "catalogue-busy catalogue-timeout catalogue-unavailable encoder-loading stopping vectors-damaged",
        5: "audit-unavailable encoder-out-of-memory", 10: "encoder-unavailable",
        30: "home-moved identity-provider-unavailable",
    }  # fmt: skip
    statuses = {slug: int(status) for slug, status, _ in SECTIONS}
    for kind in (*KINDS.values(), *FRAMEWORK_KINDS.values()):
        assert statuses[kind.slug] == kind.status, kind.slug
    for slug, status, advice in SECTIONS:
        assert HTTPStatus(int(status)) >= 400, slug
        assert len(advice) > 40, slug
    named = set(re.findall(rf"`{PREFIX}(\w+)`", text))
    assert named
    assert named <= {name.upper() for name in Settings.model_fields}


def test_a_problem_leads_to_its_section(client: TestClient) -> None:
    problem = client.get("/v1/collections/nobody").json()
    path, _, anchor = problem["help"].partition("#")
    page = client.get(path)
    assert page.headers["content-type"].startswith("text/html")
    assert problem["type"] == f"urn:recoquest:{anchor}"
    assert f'<h2 id="{anchor}">{anchor}</h2>' in page.text
    for slug, _, _ in SECTIONS:
        assert f'id="{slug}"' in page.text
    # Markup of the source is not shown as it is, and no other server is needed.
    assert "**" not in page.text
    assert "http" not in page.text.replace("HTTP", "")


# Read from forms, or by the operation itself.
_OTHER_MODELS: Final = (SearchQuery, EmbeddingsQuery, NewImage, ImageWords)
_NUMBER: Final = ("greater_than", "greater_than_equal", "less_than", "less_than_equal", "finite_number")
# Errors of each kind of schema, for values that come as JSON or in an address.
_RAISED_BY: Final[dict[str, tuple[str, ...]]] = {
    "any": (),
    "none": ("none_required",),
    "bool": ("bool_type", "bool_parsing"),
    "str": (
        "string_type", "string_unicode", "string_too_short", "string_too_long", "string_pattern_mismatch",
    ),
    "int": ("int_type", "int_parsing", "int_parsing_size", "int_from_float", *_NUMBER),
    "float": ("float_type", "float_parsing", *_NUMBER),
    "datetime": (
        "datetime_type", "datetime_parsing", "datetime_from_date_parsing", "datetime_object_invalid",
    ),
    "list": ("list_type", "too_short", "too_long"),
    "dict": ("dict_type",),
    "literal": ("literal_error",),
    "model": ("model_type",),
    "model-fields": ("missing", "extra_forbidden", "model_attributes_type"),
    "tagged-union": ("union_tag_invalid", "union_tag_not_found"),
    "union": (), "default": (), "definitions": (), "definition-ref": (), "nullable": (), "model-field": (),
    # Validators of the service have words of their own; the other form is for values of Python.
    "function-after": ("value_error",), "function-before": ("value_error",),
    "function-wrap": ("value_error",),
    "no-info": (), "with-info": (), "json-or-python": (), "is-instance": (),
}  # fmt: skip
_CONTEXT: Final[dict[str, Any]] = {
    "error": "expected a value", "max_length": 3, "min_length": 1, "actual_length": 5, "expected": "'a'",
    "gt": 1, "ge": 1, "lt": 1, "le": 1, "discriminator": "'kind'", "expected_tags": "'a', 'b'",
}  # fmt: skip
_WRONG: Final[tuple[Any, ...]] = (
    None, True, -1, 0, 1.5, 1e400, 10**400, 10**30, "", "x", "garbage", "2026-13-01", "2026-01-31x", "1e999",
    "x" * 200_000, [], [None], [1, [2]], ["x"] * 2_000, {}, {"x": 1}, {"kind": "x"}, {"kind": "reindex"},
    [{}], [{"x": 1}], {"field": 1}, [{"id": "a", "text": "b"}], {"vector": ["x"]},
)  # fmt: skip


def _parameters(dependant: Dependant) -> Iterator[TypeAdapter[Any]]:
    of_path = dependant.path_params
    for field in (*dependant.body_params, *dependant.query_params, *of_path, *dependant.header_params):
        yield field._type_adapter
    for inner in dependant.dependencies:
        yield from _parameters(inner)


@pytest.fixture(scope="module")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> list[TypeAdapter[Any]]:
    application = create_app(Settings(home=tmp_path_factory.mktemp("home")))
    results = [one for route in routes_of(application) for one in _parameters(route.dependant)]
    assert len(results) > 80
    return [*results, *(TypeAdapter(model) for model in _OTHER_MODELS)]


def _kinds(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(schema.get("type"), str):
            yield schema["type"]
        for name, part in schema.items():
            if name not in ("metadata", "serialization"):
                yield from _kinds(part)
    elif isinstance(schema, list | tuple):
        for part in schema:
            yield from _kinds(part)


def _errors(adapter: TypeAdapter[Any]) -> Iterator[Any]:
    fields = getattr(adapter._type, "model_fields", {})
    for wrong in _WRONG:
        for value in (wrong, *({name: wrong} for name in fields)):
            for validate, given in (
                (adapter.validate_python, value),
                (adapter.validate_json, json.dumps(value)),
                (adapter.validate_json, json.dumps(value)[:-1]),
            ):
                try:
                    validate(given)
                except ValidationError as error:
                    yield from error.errors(include_url=False)[:20]


def _is_ours(words: str, template: str) -> bool:
    foreign = ("Input should", "should be", "should have", "Value error", "Field required", "valid ")
    return words != template and words.endswith(".") and not any(part in words for part in foreign)


def test_every_error_that_a_request_can_raise_has_a_sentence_of_its_own(
    adapters: list[TypeAdapter[Any]],
) -> None:
    kinds = {kind for adapter in adapters for kind in _kinds(adapter.core_schema)}
    # A kind of schema that is new here needs the list of its errors.
    assert kinds <= _RAISED_BY.keys()
    can = {error for kind in kinds for error in _RAISED_BY[kind]} | {"json_invalid"}
    anything = sentence({"type": "url_parsing", "msg": "Input should be a valid URL"})
    for error in sorted(can - {"value_error"}):
        template = f"Input should be {error}"
        words = sentence({"type": error, "msg": template, "ctx": _CONTEXT})
        assert _is_ours(words, template), (error, words)
        assert error == "string_pattern_mismatch" or words != anything, error
    # One of pydantic that nobody thought of is no word of pydantic.
    for error in {*get_args(ErrorType)} - {"value_error"}:
        template = f"Input should be {error}"
        assert _is_ours(sentence({"type": error, "msg": template, "ctx": _CONTEXT}), template), error


def test_wrong_values_are_told_in_words_of_the_service(adapters: list[TypeAdapter[Any]]) -> None:
    listed = {error for errors in _RAISED_BY.values() for error in errors} | {"json_invalid"}
    pydantics = set(get_args(ErrorType))
    seen: set[str] = set()
    for adapter in adapters:
        for error in _errors(adapter):
            assert error["type"] in listed or error["type"] not in pydantics, error
            assert _is_ours(sentence(error), error["msg"]) or error["type"] not in pydantics, error
            seen.add(error["type"])
    assert len(seen & pydantics) > 20


def test_a_wrong_filter_is_told_in_words_of_the_service() -> None:
    names = ("field", "eq", "in", "gt", "gte", "lt", "lte", "exists", "and", "or", "not", "finding", "state")
    messages = set()
    for wrong in _WRONG:
        for name in names:
            of_field = {"field": "age", name: wrong}
            of_finding = {"finding": "Edema", name: wrong}
            for value in (wrong, {name: wrong}, of_field, of_finding, {"and": [of_field]}, {"not": of_field}):
                try:
                    parse_filter(value)
                except FilterError as error:
                    messages.add(str(error))
    foreign = ("Input should", "should be a valid", "Value error", "Field required", "validation error")
    assert [words for words in messages if any(part in words for part in foreign)] == []
    assert len(messages) > 10


_NO_TIME: Final = "It must be a day such as 2026-01-31, or a time such as 2026-01-31T12:00:00Z."
_EXTREME: Final = "No calendar has this time in UTC: write a later or an earlier one."


@pytest.mark.parametrize(
    ("time", "field", "message"),
    [
        *((wrong, "since", _NO_TIME) for wrong in ("garbage", "2026-13-01", "yesterday", "01.02.2026")),
        *((wrong, "until", _EXTREME) for wrong in ("0001-01-01T00:00:00+23:00", "9999-12-31T23:59:59-23:00")),
    ],
)
def test_a_wrong_time_is_answered_with_a_right_one(
    client: TestClient, time: str, field: str, message: str
) -> None:
    answer = client.get("/v1/audit", params={field: time}, headers=AS_ADMIN)
    assert answer.status_code == 422
    assert answer.json()["detail"] == f"{field}: {message}"

"""Every error of a request is told in words of the service, and never in those of pydantic."""

import json
from collections.abc import Iterator
from typing import Any, Final, get_args

import pytest
from fastapi.dependencies.models import Dependant
from fastapi.testclient import TestClient
from pydantic import TypeAdapter, ValidationError
from pydantic_core.core_schema import ErrorType

from app.application import create_app
from app.edge.http.field_errors import sentence
from app.embeddings.schemas import EmbeddingsQuery
from app.images.schemas import ImageWords, NewImage
from app.search.schemas.query import SearchQuery
from app.settings import Settings
from index.errors import FilterError
from index.filters.grammar import parse_filter
from tests.access import AS_ADMIN, routes_of

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
    "no-info": (), "json-or-python": (), "is-instance": (),
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
    for fields in (
        dependant.body_params,
        dependant.query_params,
        dependant.path_params,
        dependant.header_params,
    ):
        for field in fields:
            yield field._type_adapter
    for inner in dependant.dependencies:
        yield from _parameters(inner)


@pytest.fixture(scope="module")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> list[TypeAdapter[Any]]:
    application = create_app(Settings(home=tmp_path_factory.mktemp("home")))
    found = [one for route in routes_of(application) for one in _parameters(route.dependant)]
    assert len(found) > 80
    return [*found, *(TypeAdapter(model) for model in _OTHER_MODELS)]


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


def test_an_error_of_pydantic_that_nobody_thought_of_is_no_word_of_pydantic() -> None:
    for error in get_args(ErrorType):
        if error != "value_error":
            template = f"Input should be {error}"
            assert _is_ours(sentence({"type": error, "msg": template, "ctx": _CONTEXT}), template)


def test_a_wrong_filter_is_told_in_words_of_the_service() -> None:
    names = ("field", "eq", "in", "gt", "gte", "lt", "lte", "exists", "and", "or", "not", "finding", "state")
    told = set()
    for wrong in _WRONG:
        for name in names:
            of_field = {"field": "age", name: wrong}
            of_finding = {"finding": "Edema", name: wrong}
            for value in (wrong, {name: wrong}, of_field, of_finding, {"and": [of_field]}, {"not": of_field}):
                try:
                    parse_filter(value)
                except FilterError as error:
                    told.add(str(error))
    foreign = ("Input should", "should be a valid", "Value error", "Field required", "validation error")
    assert [words for words in told if any(part in words for part in foreign)] == []
    assert len(told) > 10


@pytest.mark.parametrize("wrong", ["garbage", "2026-13-01", "yesterday", "01.02.2026"])
def test_a_wrong_time_is_answered_with_a_right_one(client: TestClient, wrong: str) -> None:
    answer = client.get("/v1/audit", params={"since": wrong}, headers=AS_ADMIN)
    assert answer.status_code == 422
    expected = "since: It must be a day such as 2026-01-31, or a time such as 2026-01-31T12:00:00Z."
    assert answer.json()["detail"] == expected


@pytest.mark.parametrize("extreme", ["0001-01-01T00:00:00+23:00", "9999-12-31T23:59:59-23:00"])
def test_a_time_that_no_calendar_has_in_utc_is_refused(client: TestClient, extreme: str) -> None:
    answer = client.get("/v1/audit", params={"until": extreme}, headers=AS_ADMIN)
    assert answer.status_code == 422
    assert "until: No calendar has this time" in answer.json()["detail"]

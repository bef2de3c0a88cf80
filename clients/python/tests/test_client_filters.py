"""Types of filters and of options have the keys of the service's."""

from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

from app.application import create_app
from app.settings import Settings
from index.filters.grammar import parse_filter
from recoquest_client import Filter, Search, operations
from recoquest_client.options import CountOptions, ListOptions
from training.clinical.findings import STATES

FILTERS: list[Filter] = [
    {"field": "view", "eq": "PA"},
    {"field": "labels", "any_of": ["Edema", 3, True]},
    {"field": "age", "gte": 40, "lt": 70.5},
    {"finding": "effusion", "state": "absent"},
    {"and": [{"not": {"field": "urgent", "eq": True}}, {"or": [{"field": "a", "lte": "2021-03"}]}]},
]


@pytest.fixture(scope="module")
def openapi() -> dict[str, Any]:
    return create_app(Settings()).openapi()


@pytest.fixture(scope="module")
def schemas(openapi: dict[str, Any]) -> dict[str, Any]:
    described: dict[str, Any] = openapi["components"]["schemas"]
    return described


def test_each_form_has_the_keys_of_the_service(schemas: dict[str, Any]) -> None:
    ours = {kind.__name__: kind for kind in get_args(Filter)}
    union = next(one for one in schemas["CountQuery"]["properties"]["filter"]["anyOf"] if "oneOf" in one)
    assert {one["$ref"].rpartition("/")[2] for one in union["oneOf"]} == set(ours)
    for name, kind in ours.items():
        for described in schemas[name].get("anyOf", [schemas[name]]):
            assert set(described["properties"]) == kind.__required_keys__ | kind.__optional_keys__
            assert set(described["required"]) == kind.__required_keys__
    assert set(get_args(get_type_hints(ours["HasFinding"])["state"])) == set(STATES)


@pytest.mark.parametrize("filter", FILTERS)
def test_filters_of_these_types_are_filters(filter: Filter) -> None:
    assert parse_filter(filter)
    assert operations.list_images("c", {"filter": filter}, 5).params["filter"]


def _choices(hint: Any) -> set[str]:
    if get_origin(hint) is Literal:
        return set(get_args(hint))
    return set().union(*map(_choices, get_args(hint)))


def _described_choices(schema: Mapping[str, Any]) -> set[str]:
    inner = [*schema.get("anyOf", ()), *(schema[name] for name in ("items", "schema") if name in schema)]
    return {*schema.get("enum", ())}.union(*map(_described_choices, inner))


@pytest.mark.parametrize(
    ("kind", "name"), [(Search, "SearchQuery"), (CountOptions, "CountQuery"), (ListOptions, "list_images")]
)
def test_options_have_the_fields_of_the_service_and_their_choices(
    openapi: dict[str, Any], schemas: dict[str, Any], kind: type, name: str
) -> None:
    parameters = openapi["paths"]["/v1/collections/{collection}/images"]["get"]["parameters"]
    # The client itself goes from page to page of a list.
    listed = {one["name"]: one for one in parameters if one["name"] not in ("collection", "cursor", "limit")}
    described = listed if name == "list_images" else schemas[name]["properties"]
    ours = {field.removesuffix("_"): hint for field, hint in get_type_hints(kind).items()}
    assert ours.keys() == described.keys()
    for field, hint in ours.items():
        if field != "filter":
            assert _choices(hint) == _described_choices(described[field]), field

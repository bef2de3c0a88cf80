"""Types of filters have the keys of the service's."""

from typing import Any, get_args, get_type_hints

import pytest

from app.application import create_app
from app.settings import Settings
from index.filters.grammar import parse_filter
from recoquest_client import Filter, operations
from training.clinical.findings import STATES

FILTERS: list[Filter] = [
    {"field": "view", "eq": "PA"},
    {"field": "labels", "any_of": ["Edema", 3, True]},
    {"field": "age", "gte": 40, "lt": 70.5},
    {"finding": "effusion", "state": "absent"},
    {"and": [{"not": {"field": "urgent", "eq": True}}, {"or": [{"field": "a", "lte": "2021-03"}]}]},
]


@pytest.fixture(scope="module")
def schemas() -> dict[str, Any]:
    described: dict[str, Any] = create_app(Settings()).openapi()["components"]["schemas"]
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

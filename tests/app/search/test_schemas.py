"""The schema of filters in the OpenAPI description, compared with the parser."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.application import create_app
from app.search.schemas import CountQuery, SearchQuery
from app.settings import Settings
from index.errors import FilterError
from index.filters.grammar import parse_filter
from tests.needed import needed_module
from training.clinical.findings import STATES
from training.clinical.text.vocabulary import FINDINGS

jsonschema = needed_module("jsonschema", "`pip install jsonschema`")

_TEXTS = st.text(max_size=3) | st.sampled_from(["PA", "2021-03", "a\x00b", "\n", "effusion", "\U0001f600"])
_NUMBERS = st.integers() | st.floats(allow_nan=False) | st.sampled_from([10**400, -(10**309), 1.0, 0])
_VALUES = st.none() | st.booleans() | _NUMBERS | _TEXTS
_BOUNDS = ("gt", "gte", "lt", "lte")


def _conditions() -> st.SearchStrategy[dict[str, Any]]:
    """Conditions of all forms, some of them with values that no filter takes."""
    field = st.fixed_dictionaries({"field": _TEXTS})
    bounds = [
        st.dictionaries(st.sampled_from(_BOUNDS), kind, max_size=3) for kind in (_NUMBERS, _TEXTS, _VALUES)
    ]
    return st.one_of(
        st.fixed_dictionaries({"field": _TEXTS, "eq": _VALUES}),
        st.fixed_dictionaries({"field": _TEXTS, "any_of": st.lists(_VALUES, max_size=3)}),
        *(st.builds(lambda one, more: one | more, field, bound) for bound in bounds),
        st.fixed_dictionaries(
            {
                "finding": st.sampled_from([*FINDINGS, "effusion", "PLEURAL EFFUSION", "no such"]),
                "state": st.sampled_from([*STATES, "perhaps"]),
            }
        ),
        # Anything with the keys of filters.
        st.dictionaries(
            st.sampled_from(["field", "eq", "any_of", "finding", "state", "and", "or", "not", "x", *_BOUNDS]),
            _VALUES | st.lists(_VALUES, max_size=2),
            max_size=3,
        ),
    )


_FILTERS = st.recursive(
    _conditions(),
    lambda inner: st.one_of(
        st.fixed_dictionaries({"and": st.lists(inner, max_size=3)}),
        st.fixed_dictionaries({"or": st.lists(inner, max_size=3)}),
        st.fixed_dictionaries({"not": inner}),
        st.fixed_dictionaries({"not": inner, "field": _TEXTS}),
    ),
    max_leaves=4,
)


@pytest.fixture(scope="module")
def components() -> dict[str, Any]:
    described: dict[str, Any] = create_app(Settings()).openapi()["components"]
    return described


def _fits(components: Mapping[str, Any], query: str, value: Any) -> bool:
    schema = {"$ref": f"#/components/schemas/{query}", "components": components}
    return bool(jsonschema.Draft202012Validator(schema).is_valid({"filter": value}))


@pytest.mark.parametrize("query", ["SearchQuery", "CountQuery"])
@given(value=_FILTERS)
def test_what_the_description_allows_is_a_filter(
    components: dict[str, Any], query: str, value: dict[str, Any]
) -> None:
    allowed = _fits(components, query, value)
    try:
        parsed = parse_filter(value)
    except FilterError:
        assert not allowed
    else:
        # The form in which filters are written back has no bounds that are null, and findings by their names.
        written = json.loads(parsed.text)
        assert allowed or written != value
        assert _fits(components, query, written)


@pytest.mark.parametrize(
    "value",
    [
        {"field": "view", "eq": "PA"},
        {"field": "urgent", "eq": True},
        {"field": "age", "any_of": [1, 2.5, "x"]},
        {"field": "age", "gte": 40, "lt": 70},
        {"field": "taken", "lte": "2021-03-12"},
        {"finding": "mass", "state": "absent"},
        {"not": {"and": [{"or": [{"field": "a", "eq": 1}]}, {"field": "b", "gt": -1}]}},
    ],
)
def test_every_form_is_described(components: dict[str, Any], value: dict[str, Any]) -> None:
    assert _fits(components, "SearchQuery", value)
    parse_filter(value)


@pytest.mark.parametrize(
    "value",
    [
        {}, {"field": "a"}, {"field": "a", "gt": 1, "lt": "b"}, {"and": []}, {"eq": 1},
        {"field": "a", "eq": None}, {"field": "a", "eq": 1, "gt": 2}, {"finding": "mass"},
        {"not": {"field": "a"}}, "PA", [],
    ],
)  # fmt: skip
def test_the_description_tells_what_is_no_filter(components: dict[str, Any], value: Any) -> None:
    assert not _fits(components, "SearchQuery", value)
    with pytest.raises(FilterError):
        parse_filter(value)


def test_requests_leave_filters_to_their_parser() -> None:
    """Errors have the parser's sentences, not those of a schema."""
    for query in (SearchQuery, CountQuery):
        assert query(filter={"any": ["thing"]}).filter == {"any": ["thing"]}

"""Names that fields of searches had before: understood for one more version, and answered in kind."""

from collections.abc import Mapping
from typing import Any, Final

from pydantic_core import InitErrorDetails, PydanticCustomError, ValidationError

from app.schemas.search.page import SearchResponse

OLD_NAMES: Final[Mapping[str, str]] = {"limit": "k", "keywords": "words", "keywords_state": "words_state"}


def refuse_both(query: Mapping[str, Any]) -> None:
    """Refuse a query that names one thing by its name of before and by that of now.

    Raises:
        ValidationError: It does so; the error is at the old name.
    """
    for name, before in OLD_NAMES.items():
        if name in query and before in query:
            error = PydanticCustomError(
                "named_twice", "This is the old name of {name}: give {name} alone.", {"name": name}
            )
            raise ValidationError.from_exception_data(
                "query", [InitErrorDetails(type=error, loc=(before,), input=None)]
            )


def has_old_name(query: Mapping[str, Any]) -> bool:
    """Tell whether a query has a field by its name of before."""
    return not query.keys().isdisjoint(OLD_NAMES.values())


def in_old_names(page: SearchResponse) -> dict[str, Any]:
    """Return a page of hits as callers of the names of before expect it."""
    answer = page.model_dump(mode="json")
    answer["query"] = {"k": answer["query"].pop("limit"), **answer["query"]}
    answer["hits"] = [_hit_in_old_names(hit) for hit in answer["hits"]]
    return answer


def _hit_in_old_names(hit: Mapping[str, Any]) -> dict[str, Any]:
    of_before = {name: value for name, value in hit.items() if name not in ("z_score", "group_size")}
    size = hit["group_size"]
    return of_before | {
        "unusual": hit["z_score"],
        "others": None if size is None else size - 1,
        "found_by": ["words" if name == "keywords" else name for name in hit["found_by"]],
    }

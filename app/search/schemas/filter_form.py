"""Filters as requests hold them: JSON that is parsed later, described by the schema of the parser."""

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import GetJsonSchemaHandler, JsonValue, TypeAdapter
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from index.filters.grammar import MAX_CONDITIONS, MAX_DEPTH, MAX_VALUES, Filter

LIMITS = (
    f"Up to {MAX_CONDITIONS} conditions with {MAX_VALUES:,} values, {MAX_DEPTH // 2} levels deep. Other "
    "forms of a finding's name, such as effusion, are taken, too."
)


@dataclass(frozen=True, slots=True)
class _Described:
    """Describes a field by the schema of filters, and leaves it to `parse_filter` to judge what is in it."""

    def __get_pydantic_json_schema__(self, _: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        core: Any = TypeAdapter[Any](Filter).core_schema
        return handler(core)


FilterForm = Annotated[dict[str, JsonValue], _Described()]

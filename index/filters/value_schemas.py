"""JSON Schema of the values of filters, as strict as `index.filters.grammar` is."""

import sys
from typing import Any, Final

TEXT: Final[dict[str, Any]] = {"type": "string", "pattern": r"^[^\u0000]*$"}
NUMBER: Final[dict[str, Any]] = {
    "type": "number",
    "minimum": -sys.float_info.max,
    "maximum": sys.float_info.max,
}
_BOUNDS: Final = ("gt", "gte", "lt", "lte")


def describe_range(schema: dict[str, Any]) -> None:
    """Describe a range, in the schema that pydantic makes of it, as one of numbers or of texts.

    Args:
        schema: Changed in place. Bounds that are null, which filters may have, are left out.
    """
    field = schema["properties"]["field"]
    for name in ("type", "properties", "required", "additionalProperties"):
        del schema[name]
    schema["anyOf"] = [
        {
            "type": "object",
            "properties": {"field": field, **dict.fromkeys(_BOUNDS, bound)},
            "required": ["field"],
            # The field and a bound.
            "minProperties": 2,
            "additionalProperties": False,
        }
        for bound in (NUMBER, TEXT)
    ]

"""Times in the form of a crontab: minute, hour, day, month and weekday, all of which must fit."""

import re
from datetime import datetime
from typing import Final

# The least and the greatest value of each part, and after how many it begins again: Sunday is 0 and 7.
_PARTS: Final = {
    "minute": (0, 59, 60),
    "hour": (0, 23, 24),
    "day": (1, 31, 31),
    "month": (1, 12, 12),
    "weekday": (0, 7, 7),
}
_STEPS: Final = re.compile(r"(?:\*|(\d+)-(\d+))(?:/([1-9]\d*))?")


class Crontab:
    """Times that come again.

    Args:
        text: Five parts, such as `0 3 * * 0`; each is `*` or numbers and ranges, separated by commas, and a
            range or `*` may have a step: `*/15`, `22-2`, `1-5/2`.

    Raises:
        ValueError: It is not of this form.
    """

    def __init__(self, text: str) -> None:
        parts = text.split()
        if len(parts) != len(_PARTS):
            raise ValueError(f"give {len(_PARTS)} parts: {', '.join(_PARTS)}")
        self._fitting = [_values(name, part) for name, part in zip(_PARTS, parts, strict=True)]

    def fits(self, time: datetime) -> bool:
        """Tell whether the minute of a time is one of them."""
        found = (time.minute, time.hour, time.day, time.month, time.isoweekday() % 7)
        return all(value in fitting for value, fitting in zip(found, self._fitting, strict=True))


def _values(name: str, part: str) -> set[int]:
    """Return the values that fit a part."""
    least, _, period = _PARTS[name]
    counted = (value for piece in part.split(",") for value in _counted(name, piece))
    return {least + (value - least) % period for value in counted}


def _counted(name: str, piece: str) -> range:
    """Count a piece between commas; a range that ends before it begins goes on beyond the greatest value."""
    least, most, period = _PARTS[name]
    steps = _STEPS.fullmatch(piece)
    if steps is None and not piece.isdecimal():
        raise ValueError(f"{piece!r} is no {name} such as {least}, {least}-5, */2 or *")
    first, last, step = (piece, piece, None) if steps is None else steps.groups()
    begin, end = (least, least + period - 1) if first is None else (int(first), int(last))
    if not (least <= begin <= most and least <= end <= most):
        raise ValueError(f"{piece!r} is no {name} from {least} to {most}")
    return range(begin, end + 1 + (period if end < begin else 0), int(step or 1))

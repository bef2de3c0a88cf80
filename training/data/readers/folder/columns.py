"""Tells what the columns of a user's table hold, by their names."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, get_args

from training.data.readers.common.examples import shortened
from training.data.readers.common.roles import NAMES, Role
from training.data.readers.folder.paths import is_like_image
from training.data.readers.tables import Table
from training.errors import DataError

_ROLES: Final = {name: role for role, names in NAMES.items() for name in names}
_SHOWN: Final = 12
# pandas calls a column without a name so, when it reads a table that it wrote with its index.
_UNNAMED: Final = re.compile(r"(?:Unnamed: [0-9]+)?")
_CALLED: Final[dict[Role, str]] = {"order": "the order of texts"}
_BETWEEN: Final = re.compile(r"[\s_-]+")


@dataclass(frozen=True)
class Columns:
    """The columns of a table by what they hold.

    Attributes:
        places: Place of the column of each role that the table has.
        metadata: Names of the columns that become metadata, by their places.
        unnamed: Places of columns without a name.
        notes: Sentences on what was taken for what.
    """

    places: dict[Role, int]
    metadata: dict[int, str]
    unnamed: tuple[int, ...]
    notes: tuple[str, ...]


def is_known_column(name: str) -> bool:
    """Whether a column's name says that it holds something other than metadata."""
    return _normal(name) in _ROLES


def read_columns(table: Table) -> Columns:
    """Tell what each column of a table holds: by its name or a synonym, without regard to case.

    Raises:
        DataError: No column holds the paths of images.
    """
    normal = [_normal(name) for name in table.columns]
    places: dict[Role, int] = {}
    for role in get_args(Role):
        place = next((normal.index(name) for name in NAMES[role] if name in normal), None)
        if place is not None:
            places[role] = place
    if "image" not in places:
        raise DataError(_without_images(table))
    used = set(places.values())
    unnamed = tuple(place for place, name in enumerate(table.columns) if _UNNAMED.fullmatch(name))
    used.update(unnamed)
    metadata = {place: name for place, name in enumerate(table.columns) if place not in used}
    return Columns(places, metadata, unnamed, tuple(_notes(table, places, metadata)))


def _normal(name: str) -> str:
    return _BETWEEN.sub("_", name.strip().casefold())


def _without_images(table: Table) -> str:
    first = next((name for name in table.columns if is_like_image(name)), None)
    if first is not None:
        return (
            f"{table.path} begins with the image {first!r}; put a line with the names of the columns ahead, "
            "such as image,text."
        )
    shown = ", ".join(shortened(name) for name in table.columns[:_SHOWN])
    return (
        f"{table.path} has no column 'image' (or such as 'file_name', 'path'); its first line has {shown}. "
        "Name the column with the paths of the images 'image', and that with texts 'text'."
    )


def _notes(table: Table, places: dict[Role, int], metadata: dict[int, str]) -> Iterator[str]:
    if table.titles:
        yield f"Passed over {table.titles} {'line' if table.titles == 1 else 'lines'} ahead of the header."
    if table.captions:
        yield f"Took {table.path} for lines of a name, # and a number, a tab, and a caption."
    taken = [
        f"{table.columns[place]!r} for {_CALLED.get(role, role)}"
        for role, place in places.items()
        if table.columns[place].casefold() != role
    ]
    if taken:
        yield f"Took {'column' if len(taken) == 1 else 'columns'} {_listed(taken)}."
    beside = [name for name in metadata.values() if _ROLES.get(_normal(name), "") in places]
    if beside:
        yield f"Took {_listed([repr(name) for name in beside])} for metadata, beside the columns above."
    if "text" not in places and "report" not in places:
        names = [shortened(name) for name in metadata.values()][:_SHOWN]
        others = f"; its other columns are {_listed(names)}" if names else ""
        yield f"{table.path} has no column of texts, such as 'text', 'caption' or 'report'{others}."


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"

"""Tells what the columns of a user's table hold, by their names."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, get_args

from training.common.errors import DataError
from training.common.tables.roles import LAST_TEXTS, NAMES, Role, normal_name
from training.common.tables.table import Table, is_unnamed
from training.importing.examples import shortened
from training.importing.folder.paths import is_like_image

_ROLES: Final[dict[str, Role]] = {
    name: role for role, names in NAMES.items() for name in names
} | dict.fromkeys(LAST_TEXTS, "text")
_CALLED: Final[dict[Role, str]] = {"order": "the order of texts"}
_SAYING: Final[frozenset[Role]] = frozenset({"text", "report", "findings", "impression"})
_SHOWN: Final = 12
# Tables of exiftool have this column, and others by their tags, with a group ahead or without.
_EXIFTOOL: Final = "sourcefile"
_GROUP: Final = re.compile(r"^(?:exif|ifd\d|iptc|xmp(?:_\w+)?|file|system|composite|photoshop|png):")
_CAPTIONS: Final = frozenset(("imagedescription", "caption_abstract", "description", "headline", "xpcomment"))
_KEYWORDS: Final = frozenset(("keywords", "subject", "xpkeywords"))
# An image with several texts may have them beside one another: caption1, caption_2.
_NUMBERED: Final = re.compile(r"(.*?[^\d_])_?(\d{1,2})")


@dataclass(frozen=True)
class Columns:
    """The columns of a table by what they hold.

    Attributes:
        places: Place of the column of each role that the table has; of several with texts, the first one.
        texts: Places of all columns with texts, in their order.
        labels: Places of all columns with labels.
        metadata: Names of the columns that become metadata, by their places.
        unnamed: Places of columns without a name.
        notes: Sentences on what was taken for what.
        exiftool: Whether exiftool wrote the table.
    """

    places: dict[Role, int]
    texts: tuple[int, ...]
    labels: tuple[int, ...]
    metadata: dict[int, str]
    unnamed: tuple[int, ...]
    notes: tuple[str, ...]
    exiftool: bool = False


def is_known_column(name: str) -> bool:
    """Whether a column's name says that it holds something other than metadata."""
    return _plain(name) in _ROLES


def read_columns(table: Table, column_of_images: Callable[[], int | None] = lambda: None) -> Columns:
    """Tell what each column of a table holds: by its name or a synonym, without regard to case.

    Args:
        table: The table.
        column_of_images: Finds the column with the paths of images where no name says which it is.

    Raises:
        DataError: No column holds the paths of images.
    """
    normal = [_GROUP.sub("", normal_name(name)) for name in table.columns]
    exiftool = _EXIFTOOL in normal
    places: dict[Role, int] = {}
    for role in get_args(Role):
        place = next((normal.index(name) for name in NAMES[role] if name in normal), None)
        if place is not None:
            places[role] = place
    texts = _texts(normal)
    labels = tuple(place for role, place in places.items() if role == "labels")
    if exiftool:
        # A caption or a keyword may be in any of them.
        texts = tuple(place for place, name in enumerate(normal) if name in _CAPTIONS) or texts
        labels = tuple(place for place, name in enumerate(normal) if name in _KEYWORDS) or labels
        places["image"] = normal.index(_EXIFTOOL)
    if labels:
        places["labels"] = labels[0]
    if texts:
        places["text"] = texts[0]
    if "report" not in places and ("findings" in places) != ("impression" in places):
        # One section alone is the whole of what a report says.
        places["report"] = places.pop("findings", places.pop("impression", -1))
    if "image" not in places and (place := column_of_images()) is not None:
        texts = tuple(other for other in texts if other != place)
        places = {role: other for role, other in places.items() if other != place} | {"image": place}
    if "image" not in places:
        raise DataError(_without_images(table))
    used = {*places.values(), *texts, *labels}
    unnamed = tuple(place for place, name in enumerate(table.columns) if is_unnamed(name))
    used.update(unnamed)
    metadata = {place: name for place, name in enumerate(table.columns) if place not in used}
    notes = tuple(_notes(table, places, texts, labels, metadata))
    return Columns(places, texts, labels, metadata, unnamed, notes, exiftool)


def _plain(name: str) -> str:
    """The name of a column without its number, if one of texts has any."""
    normal = normal_name(name)
    numbered = _NUMBERED.fullmatch(normal)
    if normal in _ROLES or numbered is None or _ROLES.get(numbered[1]) != "text":
        return normal
    return numbered[1]


def _texts(normal: Sequence[str]) -> tuple[int, ...]:
    """Places of the columns of one name for texts, that without a number first."""
    plain = [_plain(name) for name in normal]
    base = next((name for name in (*NAMES["text"], *LAST_TEXTS) if name in plain), None)
    places = [place for place, name in enumerate(plain) if name == base]

    def number(place: int) -> int:
        found = _NUMBERED.fullmatch(normal[place])
        return 0 if found is None or normal[place] == base else int(found[2])

    return tuple(sorted(places, key=number))


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


def _notes(
    table: Table,
    places: dict[Role, int],
    texts: Sequence[int],
    labels: Sequence[int],
    metadata: dict[int, str],
) -> Iterator[str]:
    if table.titles:
        yield f"Passed over {table.titles} {'line' if table.titles == 1 else 'lines'} ahead of the header."
    if table.captions:
        yield f"Took {table.path} for lines of a name, # and a number, a tab, and a caption."
    several: dict[Role, list[int]] = {"text": list(texts), "labels": list(labels)}
    named = {role: several.get(role) or [place] for role, place in places.items()}
    taken = [
        f"{_listed([repr(table.columns[place]) for place in own])} for {_CALLED.get(role, role)}"
        for role, own in named.items()
        if any(table.columns[place].casefold() != role for place in own)
    ]
    if taken:
        plural = len(taken) > 1 or " and " in taken[0]
        yield f"Took {'columns' if plural else 'column'} {_listed(taken)}."
    beside = [name for name in metadata.values() if _ROLES.get(_plain(name)) in places]
    if beside:
        yield f"Took {_listed([repr(name) for name in beside])} for metadata, beside the columns above."
    if places.keys().isdisjoint(_SAYING):
        names = [shortened(name) for name in metadata.values()][:_SHOWN]
        others = f"; its other columns are {_listed(names)}" if names else ""
        way = ": rename one to 'text' or 'report'" if names else ""
        yield f"{table.path} has no column of texts, such as 'text', 'caption' or 'report'{others}{way}."


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"

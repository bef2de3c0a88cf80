"""Meanings of a sample's fields, by the names that data sets commonly give them."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from training.clinical.reports.report_text import Report, make_report, read_report_or_text
from training.common.record import LARGEST_INTEGER, MetadataValue, Scalar
from training.common.tables.roles import NAMES, normal_name
from training.common.values import is_not_known, parse_list

# Names that samples have beside those of columns.
_TEXTS: Final = frozenset((*NAMES["text"], "txt", "raw"))
_LABELS: Final = frozenset((*NAMES["labels"], "cls"))
_REPORT: Final = frozenset((*NAMES["report"], "befund"))
_GROUP: Final = frozenset(NAMES["group"])
_SECTIONS: Final = ("findings", "impression")
# Names that a record has for itself.
_RESERVED: Final = frozenset(("id", "split", "group", "image"))


@dataclass(frozen=True)
class Described:
    """The fields of a sample, by what they say of its image."""

    texts: tuple[str, ...]
    labels: tuple[str, ...]
    report: str | None
    group: str | None
    metadata: Mapping[str, MetadataValue]
    unread: tuple[str, ...] = ()
    listed: tuple[str, ...] = ()


@dataclass
class Noted:
    """Counts fields of samples by name: those that are not read, and those with lists in quotes."""

    unread: Counter[str] = field(default_factory=Counter)
    listed: Counter[str] = field(default_factory=Counter)

    def add(self, known: Described) -> None:
        """Count those of a sample."""
        self.unread.update(known.unread)
        self.listed.update(known.listed)

    def notes(self) -> Iterator[str]:
        """Sentences for the report."""
        if self.unread:
            yield f"Values of samples that are not read: {_counted(self.unread)}."
        if self.listed:
            yield f"Values that are lists in quotes, of which each item was taken: {_counted(self.listed)}."


def _counted(names: Counter[str]) -> str:
    return ", ".join(f"{name} ({count:,})" for name, count in sorted(names.items()))


def describe(fields: Mapping[str, object]) -> Described:
    """Sort the fields of a sample by their names; those of other names are metadata.

    Texts stay whole; a report is split into its sentences. Objects, and lists of them, are named as unread. A
    field named id, split, image, or a second group, becomes metadata with `source_` before its name, and so
    does one whose name is taken; a second report becomes metadata, too.
    """
    texts: list[str] = []
    labels: list[str] = []
    group: str | None = None
    metadata: dict[str, MetadataValue] = {}
    sections = dict.fromkeys(_SECTIONS, "")
    whole = ""
    unread: list[str] = []
    listed: list[str] = []
    for name, given in fields.items():
        key = normal_name(name.rsplit("/", 1)[-1])
        value = given
        if isinstance(given, str) and key in _TEXTS | _LABELS and (items := parse_list(given)) is not None:
            value = items
            listed.append(name)
        if key in _TEXTS:
            texts += (" ".join(text.split()) for text in _strings(value))
        elif key in _LABELS:
            labels += _strings(value)
        elif key in _REPORT and not whole.strip():
            whole = "\n".join(_strings(value))
        elif key in sections and not sections[key]:
            sections[key] = "\n".join(_strings(value))
        elif key in _GROUP and group is None and isinstance(value, str | int) and str(value).strip():
            group = str(value).strip()
        elif (known := _metadata(value)) is not None:
            own = f"source_{name}" if key in _RESERVED else name
            while own in metadata:
                own = f"source_{own}"
            metadata[own] = known
        elif not isinstance(value, Scalar | None) and value:
            unread.append(name)
    report = make_report({name.upper(): text for name, text in sections.items()})
    if whole.strip():
        sentences = report.sentences or read_report_or_text(whole).sentences
        report = Report(whole.strip(), sentences)
    return Described(
        texts=tuple(dict.fromkeys((*filter(None, texts), *report.sentences))),
        labels=tuple(dict.fromkeys(labels)),
        report=report.text,
        group=group,
        metadata=metadata,
        unread=tuple(unread),
        listed=tuple(listed),
    )


def _strings(value: object) -> Iterator[str]:
    """The texts of a field: it, or the items of a list."""
    for item in value if isinstance(value, Sequence) and not isinstance(value, str | bytes) else (value,):
        if isinstance(item, str | int | float) and not is_not_known(str(item)):
            yield str(item).strip()


def _metadata(value: object) -> MetadataValue | None:
    """A value that metadata can hold; None for any other, and for one that is not known."""
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        if not all(item is None or isinstance(item, Scalar) for item in value):
            return None
        return tuple(item for item in map(_scalar, value) if item is not None) or None
    return _scalar(value)


def _scalar(value: object) -> Scalar | None:
    """A text or a number; a whole number too large for one is a name, and so a text."""
    if isinstance(value, str):
        return None if is_not_known(value) else value
    if isinstance(value, int):
        return value if abs(value) <= LARGEST_INTEGER else str(value)
    return value if isinstance(value, float) and math.isfinite(value) else None

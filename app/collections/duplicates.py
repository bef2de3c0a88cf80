"""The near-duplicates of a collection as JSON: all of them, and what of them is shown as a job's result."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from index.duplicates import Duplicates
from training.common.atomic import atomic_file

# Together less than a job's result may have.
_GROUP_BYTES: Final = 48 << 10
_UNREAD_BYTES: Final = 8 << 10


def as_json(found: Duplicates) -> dict[str, list[Any]]:
    """The groups, and the ids of images that could not be looked at."""
    groups = [{"ids": list(group.ids), "same_file": group.same_file} for group in found.groups]
    return {"groups": groups, "unread": list(found.unread)}


def write_groups(found: Duplicates, folder: Path) -> None:
    """Write all into `groups.json` of a folder, and what a job shows of it into `result.json`."""
    everything = as_json(found)
    for name, content in (("groups.json", everything), ("result.json", _shortened(everything))):
        with atomic_file(folder / name) as file:
            file.write(json.dumps(content).encode() + b"\n")


def _shortened(everything: dict[str, list[Any]]) -> dict[str, Any]:
    """Groups that fit into a result, in order, and the number of truncated ones."""
    shown = {
        "groups": _fitting(everything["groups"], _GROUP_BYTES),
        "unread": _fitting(everything["unread"], _UNREAD_BYTES),
    }
    left_out = {name: len(everything[name]) - len(entries) for name, entries in shown.items()}
    return {**shown, "left_out": left_out}


def _fitting(entries: Iterable[Any], room: int) -> list[Any]:
    """The entries but for those that there is no room for, however large a single one is."""
    kept = []
    for entry in entries:
        size = len(json.dumps(entry)) + len(", ")
        if size <= room:
            kept.append(entry)
            room -= size
    return kept

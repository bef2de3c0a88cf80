"""Groups of images, such as all of a patient or a study; an image without a group is a group of its own."""

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from typing import Final

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Select, select
from sqlalchemy.orm import Session

from index.catalogue.tables import EmbeddingRow, ImageRow, TextEmbeddingRow, TextRow
from index.generations import Generation, Target
from index.vectors.protocol import Keys

# A group's name, or the key of an image that has none.
Group = str | int
Read = Callable[[], AbstractContextManager[Session]]

# Databases bound the number of values in a statement.
_KEYS_AT_ONCE: Final = 10_000


class Groups:
    """The groups of a collection's images or texts, looked up as they are needed.

    Args:
        read: Opens a read of the catalogue.
        target: Whether keys are of images or of texts; a text is of its image's group.
    """

    def __init__(self, read: Read, target: Target) -> None:
        self._read = read
        self._target = target
        self._known: dict[int, Group] = {}

    def of(self, keys: Keys) -> dict[int, Group]:
        """Return the groups of those of these keys that the catalogue still has."""
        wanted = keys.tolist()
        missing = [key for key in wanted if key not in self._known]
        if missing:
            # What the view holds may have been written after the search began, so this is a new read.
            with self._read() as session:
                for start in range(0, len(missing), _KEYS_AT_ONCE):
                    some = missing[start : start + _KEYS_AT_ONCE]
                    for key, image, name in session.execute(self._names(some)):
                        self._known[key] = image if name is None else name
        return {key: self._known[key] for key in wanted if key in self._known}

    def first_places(self, keys: Keys) -> NDArray[np.int64]:
        """Return the places at which a group comes for the first time; keys that are gone have none."""
        groups = self.of(keys)
        seen: set[Group] = set()
        places = []
        for place, key in enumerate(keys.tolist()):
            group = groups.get(key)
            if group is not None and group not in seen:
                seen.add(group)
                places.append(place)
        return np.array(places, dtype=np.int64)

    def _names(self, keys: list[int]) -> Select[int, int, str | None]:
        if self._target == "images":
            return select(ImageRow.id, ImageRow.id, ImageRow.group_name).where(ImageRow.id.in_(keys))
        return (
            select(TextRow.id, ImageRow.id, ImageRow.group_name)
            .join(ImageRow, ImageRow.id == TextRow.image_id)
            .where(TextRow.id.in_(keys))
        )


def others(
    session: Session,
    generation: Generation,
    target: Target,
    groups: Mapping[int, Group],
    allowed: Keys | None,
    hidden: Keys,
) -> dict[int, int]:
    """Return for keys how many more of their group could be found.

    Args:
        session: A read of the catalogue.
        generation: What is searched; only what it has a vector of counts.
        target: What the keys are of.
        groups: The group of each key.
        allowed: Keys that pass the filter; None for all.
        hidden: Keys that are left out.
    """
    members = _members(session, generation, target, set(groups.values()))
    counts = {}
    for key, group in groups.items():
        of_group = np.array(members.get(group, []), dtype=np.int64)
        found = ~np.isin(of_group, hidden) & (of_group != key)
        if allowed is not None:
            found &= np.isin(of_group, allowed)
        counts[key] = int(found.sum())
    return counts


def _members(
    session: Session, generation: Generation, target: Target, groups: Collection[Group]
) -> dict[Group, list[int]]:
    """Return the keys of all images or texts of these groups that a generation has vectors of."""
    if target == "images":
        query = (
            select(ImageRow.id, ImageRow.id, ImageRow.group_name)
            .join(EmbeddingRow, EmbeddingRow.image_id == ImageRow.id)
            .where(EmbeddingRow.generation_id == generation.id)
        )
    else:
        query = (
            select(TextRow.id, ImageRow.id, ImageRow.group_name)
            .join(ImageRow, ImageRow.id == TextRow.image_id)
            .join(TextEmbeddingRow, TextEmbeddingRow.text_id == TextRow.id)
            .where(TextEmbeddingRow.generation_id == generation.id)
        )
    names = ImageRow.group_name.in_([group for group in groups if isinstance(group, str)])
    single = ImageRow.id.in_([group for group in groups if isinstance(group, int)])
    found: dict[Group, list[int]] = {}
    for condition in (names, single):
        asked = query.where(ImageRow.collection_id == generation.collection_id, condition)
        for key, image, name in session.execute(asked):
            found.setdefault(image if name is None else name, []).append(key)
    return found


def keys_left_out(
    session: Session,
    collection_id: int,
    target: Target,
    images: Collection[str],
    groups_of: Collection[str],
) -> set[int]:
    """Return the keys of these images, or of their texts, and of everything in the groups of others.

    Args:
        session: A read of the catalogue.
        collection_id: Key of the collection.
        target: Which keys are wanted.
        images: Ids of images.
        groups_of: Ids of images whose whole groups are meant; those without a group alone.
    """
    if not images and not groups_of:
        return set()
    named = ImageRow.external_id.in_([*images, *groups_of])
    of_groups = ImageRow.group_name.in_(
        select(ImageRow.group_name).where(
            ImageRow.collection_id == collection_id, ImageRow.external_id.in_(list(groups_of))
        )
    )
    left_out = (ImageRow.collection_id == collection_id) & (named | of_groups)
    query = select(ImageRow.id).where(left_out)
    if target == "texts":
        query = select(TextRow.id).join(ImageRow, ImageRow.id == TextRow.image_id).where(left_out)
    return set(session.execute(query).scalars())

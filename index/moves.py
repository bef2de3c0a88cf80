"""Images whose files got another name: they keep their rows, and with them vectors, judgements and cases."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from os.path import commonprefix
from pathlib import PurePosixPath
from typing import Final

from sqlalchemy import bindparam, select, update
from sqlalchemy.orm import Session

from index.catalogue.collections import Generation, next_sequence
from index.catalogue.lookup import images_named, rows_among
from index.catalogue.tables import AttributeRow, ImageRow
from index.errors import StaleWriteError
from index.feedback import rename_examples
from index.writes.deletion import delete_images
from index.writes.intake import KnownImage
from training.common.manifest import Record

# Pairs of names that are compared; of more, all are ambiguous.
_MOST_PAIRS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Moves:
    """Images of a collection whose files a manifest has under other ids.

    Attributes:
        ids: The new id of each image, by the id that it has.
        replaced: Ids that the manifest gives to a moved file, whose own image it no longer has.
        ambiguous: Ids whose file is that of several images, so that none of these moves there.
    """

    ids: Mapping[str, str]
    replaced: tuple[str, ...] = ()
    ambiguous: tuple[str, ...] = ()


def find_moves(
    known: Mapping[str, KnownImage],
    contents: Mapping[str, tuple[Record, Collection[str]]],
    absent: Collection[str],
) -> Moves:
    """Match ids that the manifest no longer has, or has with another file, with the ids of the same files.

    Args:
        known: Images of the collection, by id.
        contents: Records of the manifest by id, each with the digests that its file may be stored under;
            none where the file cannot be read.
        absent: Ids of images that the manifest no longer has.
    """
    changed = {
        name
        for name, (_, digests) in contents.items()
        if digests and name in known and known[name].sha256 not in digests
    }
    former: defaultdict[str, list[str]] = defaultdict(list)
    for name in sorted(changed.union(absent)):
        former[known[name].sha256].append(name)
    wanted: defaultdict[str, list[Record]] = defaultdict(list)
    for name, (record, digests) in contents.items():
        found = next((digest for digest in digests if digest in former), None)
        if found is not None and (name in changed or name not in known):
            wanted[found].append(record)
    ids: dict[str, str] = {}
    for digest, records in wanted.items():
        ids |= _pairs(former[digest], records)
    moved_to = frozenset(ids.values())
    return Moves(
        ids,
        tuple(sorted(name for name in changed if name in moved_to and name not in ids)),
        tuple(record.id for records in wanted.values() for record in records if record.id not in moved_to),
    )


def _pairs(former: Sequence[str], records: Sequence[Record]) -> dict[str, str]:
    """Pair ids of equal files: one with one, or by the longest common end, with at least the file's name."""
    if len(former) == len(records) == 1:
        return {former[0]: records[0].id}
    if len(former) * len(records) > _MOST_PAIRS:
        return {}
    closest = {record.id: _closest(record, former) for record in records}
    wanted = Counter(closest.values())
    return {name: new for new, name in closest.items() if name is not None and wanted[name] == 1}


def _closest(record: Record, former: Sequence[str]) -> str | None:
    backwards = record.id.casefold()[::-1]
    lengths = [len(commonprefix([backwards, name.casefold()[::-1]])) for name in former]  # noqa: RUF071
    longest = max(lengths)
    is_one = lengths.count(longest) == 1 and longest >= len(PurePosixPath(record.image).name)
    return former[lengths.index(longest)] if is_one else None


def move_images(
    session: Session, generation: Generation, moves: Moves, known: Mapping[str, KnownImage]
) -> None:
    """Give images their new ids, in the caller's transaction, and remove those whose ids they take.

    Raises:
        StaleWriteError: An image is gone or has another file by now.
    """
    collection_id = generation.collection_id
    sequence = next_sequence(session, collection_id)
    if moves.replaced:
        delete_images(session, generation.collection, moves.replaced)
    rows = [
        # No id has a slash: none of these is taken on the way.
        {"key": row.id, "aside": f"/{row.id}", "name": moves.ids[name]}
        for name, row in images_named(session, collection_id, moves.ids).items()
        if row.sha256 == known[name].sha256
    ]
    if len(rows) < len(moves.ids):
        raise StaleWriteError("Images were changed by somebody else meanwhile: index the manifest again.")
    for column in ("aside", "name"):
        renamed = update(ImageRow).where(ImageRow.id == bindparam("key"))
        values = {"external_id": bindparam(column), "sequence": sequence}
        session.connection().execute(renamed.values(values), rows)
    rename_examples(session, collection_id, moves.ids)


def folders_of(session: Session, collection_id: int, ids: Sequence[str]) -> Counter[str]:
    """Count images by the folder that an import has noted of them."""
    keys = [row.id for row in images_named(session, collection_id, ids).values()]
    query = select(AttributeRow.text_value).where(AttributeRow.name == "folder")
    rows = rows_among(session, query, AttributeRow.image_id, keys)
    return Counter(row.text_value for row in rows if row.text_value is not None)

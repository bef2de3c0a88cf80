"""Shards of WebDataset and img2dataset: tar files; members of one name, up to its first dot, are a sample."""

import json
import tarfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from training.common.errors import DataError, ImageError
from training.common.record import Record
from training.common.rejections import LeftOut, Rejection
from training.imaging.formats import is_readable_suffix
from training.importing.columns import Noted, describe
from training.importing.extraction import FOLDER, Extraction
from training.importing.image_files import walk_files
from training.importing.listing import Listing

_ENDINGS: Final = (".tar", ".tar.gz", ".tgz")
_TEXTS: Final = frozenset(("txt", "text", "caption", "cls", "label"))
_LARGEST_IMAGE: Final = 256 << 20
_LARGEST_TEXT: Final = 16 << 20
# Notes of img2dataset on its own work.
_BOOKKEEPING: Final = frozenset(
    (
        *("key", "__key__", "__url__", "status", "error_message", "exif", "sha256", "md5"),
        *("width", "height", "original_width", "original_height"),
    )
)
_NO_FILE: Final = "members of shards that are links, devices or hidden files"


@dataclass
class _Sample:
    """Members of one key.

    Attributes:
        key: Their path up to the first dot of the file's name.
        images: Content of each image by its ending, such as "jpg" or "left.jpg".
        members: Values of the texts and objects by their endings.
        unread: Endings of members that are neither image nor text.
        fault: Why a member cannot be used, if one cannot.
    """

    key: str
    images: dict[str, bytes] = field(default_factory=dict)
    members: dict[str, object] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)
    fault: str = ""

    def __len__(self) -> int:
        return max(1, len(self.images))

    @property
    def prefixes(self) -> set[str]:
        """What the endings of images have ahead of their last part."""
        return {_split_ending(ending)[0] for ending in self.images}

    @property
    def is_one(self) -> bool:
        """Whether several images belong together: those with members of their own are of several names."""
        alone = self.members and all(_split_ending(ending)[0] for ending in self.members)
        return len(self.images) > 1 and not alone

    def add(self, ending: str, content: bytes) -> None:
        kind = _split_ending(ending)[1]
        if ending in self.images or ending in self.members:
            self.fault = f"it has two members {ending!r}"
        elif is_readable_suffix(f".{kind}"):
            self.images[ending] = content
        elif kind in _TEXTS or kind == "json":
            self._add_text(ending, kind, content)
        else:
            self.unread.append(kind)

    def _add_text(self, ending: str, kind: str, content: bytes) -> None:
        try:
            text = content.decode("utf-8-sig")
            self.members[ending] = (
                json.loads(text, object_pairs_hook=_unique) if kind == "json" and text else text
            )
        except (ValueError, RecursionError) as error:
            self.fault = f"its {ending} cannot be read: {error}"

    def fields(self, prefix: str | None) -> dict[str, object]:
        """What the members say: those with a prefix, else those without any; all of them for None.

        Members without a prefix belong to all images, unless one image has none either.

        Raises:
            ImageError: Two members say the same.
        """
        shared = "" if "" not in self.prefixes else prefix
        endings: dict[str, str] = {}
        # Those with the prefix come last.
        for ending in sorted(self.members, key=lambda ending: _split_ending(ending)[0] == prefix):
            own, kind = _split_ending(ending)
            if prefix is None and kind in endings:
                raise ImageError(f"it has two members for {kind}: {endings[kind]} and {ending}")
            if prefix is None or own in (prefix, shared):
                # Objects are joined.
                endings[ending if kind == "json" else kind] = ending
        fields: dict[str, object] = {}
        for ending in endings.values():
            value, kind = self.members[ending], _split_ending(ending)[1]
            named = value if isinstance(value, dict) else {"caption" if kind == "json" else kind: value}
            for name, item in named.items():
                if fields.setdefault(name, item) != item:
                    raise ImageError(f"two of its members have {name!r}")
        return fields


def _split_ending(ending: str) -> tuple[str, str]:
    """The prefix and the kind of an ending: "left" and "jpg" of left.jpg."""
    prefix, _, kind = ending.rpartition(".")
    return prefix, kind


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    known = dict(pairs)
    if len(known) != len(pairs):
        raise ValueError("a key is given twice")
    return known


def list_webdataset(source: Path, out: Path) -> Listing:
    """Find the tar files in `source` and below, or take the one that it is; images go to `out`/images.

    Each image of a sample is a record. Its texts are those of `.txt` and of `caption` and its like in
    `.json`, its labels those of `.cls`; other values in `.json` are metadata. Where names have further dots,
    as in 22.05.jpg, an image takes the members with its own prefix (05.txt), else those without one.

    Args:
        source: A folder of shards, or one shard.
        out: Folder of the manifest. Images that are there already are not written again.

    Raises:
        DataError: There is no shard, or one cannot be read.
    """
    if source.is_file():
        shards = {source.name: source}
    else:
        shards = {path: source / path for path in walk_files(source) if path.endswith(_ENDINGS)}
    if not shards:
        raise DataError(f"There is no shard such as 00000.tar in {source}.")
    total = 0
    dotted = False
    unread = Counter[str]()
    for path in shards.values():
        for item in _samples(path, read=False):
            total += item.count if isinstance(item, LeftOut) else len(item)
            if not isinstance(item, LeftOut):
                unread.update(item.unread)
                dotted = dotted or item.prefixes - {""} != set()
    notes = [f"{count:,} .{kind} files of samples are not read." for kind, count in sorted(unread.items())]
    items = _read(shards, Extraction(out / FOLDER), notes, dotted=dotted)
    return Listing(source, out / FOLDER, total, items, "image", notes=notes, extracted=True)


def _read(
    shards: Mapping[str, Path], extraction: Extraction, notes: list[str], *, dotted: bool
) -> Iterator[Record | Rejection | LeftOut]:
    """The images of all samples.

    Args:
        shards: Files by their names.
        extraction: Writes the images.
        notes: Gets a sentence on values that are not read.
        dotted: Whether endings of images have prefixes, by which members belong to them.
    """
    number = 0
    noted = Noted()
    for shard, path in shards.items():
        for item in _samples(path, read=True):
            if isinstance(item, LeftOut):
                yield item
                continue
            for ending in item.images or ([] if dotted and item.members else [""]):
                number += 1
                try:
                    yield _to_record(item, ending, number, shard, extraction, noted, dotted=dotted)
                except ImageError as error:
                    yield Rejection(number, f"{item.key!r}: {error}", shard)
            alone = {_split_ending(ending)[0] for ending in item.members} - item.prefixes
            for prefix in sorted(alone - ({""} if item.images else set()) if dotted else ()):
                number += 1
                name = f"{item.key}.{prefix}" if prefix else item.key
                found = ", ".join(kind for own, kind in map(_split_ending, item.members) if own == prefix)
                yield Rejection(number, f"{name!r} has no image, only {found}", shard)
    notes += noted.notes()
    extraction.finish()


def _to_record(
    sample: _Sample,
    ending: str,
    number: int,
    shard: str,
    extraction: Extraction,
    noted: Noted,
    *,
    dotted: bool,
) -> Record | Rejection:
    if sample.fault:
        return Rejection(number, f"{sample.key!r}: {sample.fault}", shard)
    prefix = _split_ending(ending)[0]
    fields = sample.fields(prefix if dotted else None)
    if not ending:
        found = ", ".join(name for name in fields if name not in _BOOKKEEPING) or "nothing that is read"
        return Rejection(number, f"{sample.key!r} has no image, only {found}", shard)
    noted.unread.update(name for name in fields if name in _BOOKKEEPING)
    known = describe({name: value for name, value in fields.items() if name not in _BOOKKEEPING})
    noted.add(known)
    folder = next(shard.removesuffix(end) for end in reversed(_ENDINGS) if shard.endswith(end))
    inside, _, name = sample.key.rpartition("/")
    # "left" of left.jpg, where a sample has several images.
    alike = sum(_split_ending(other)[0] == prefix for other in sample.images)
    part = ending if alike > 1 else prefix or (ending if len(sample.images) > 1 else "")
    name = f"{name}-{part.replace('.', '-')}" if part else name
    image = extraction.write(f"{folder}/{inside}", name, sample.images[ending])
    return Record(
        id="-".join(f"{folder}/{inside}/{name}".replace("//", "/").split("/")),
        image=image,
        texts=known.texts,
        group=known.group or (f"{folder}/{sample.key}" if sample.is_one else None),
        labels=known.labels,
        report=known.report,
        metadata=known.metadata,
        line=number,
        table=shard,
    )


def _samples(path: Path, *, read: bool) -> Iterator[_Sample | LeftOut]:
    """Give the samples of a shard in order, with or without the contents of their members."""
    sample: _Sample | None = None
    try:
        with tarfile.open(path) as shard:
            for member in shard:
                name = member.name.removeprefix("./")
                folder, _, file = name.rpartition("/")
                stem, _, ending = file.partition(".")
                if member.isdir():
                    continue
                if not member.isfile() or (not stem and folder != ".."):
                    yield LeftOut(_NO_FILE)
                    continue
                key = f"{folder}/{stem}" if folder else stem
                if sample is None or sample.key != key:
                    if sample is not None:
                        yield sample
                    sample = _Sample(key)
                _add(sample, ending.lower(), shard, member, read=read)
            _require_end(shard)
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise DataError(f"The shard {path} cannot be read: {error}. Is its download whole?") from error
    if sample is not None:
        yield sample


def _require_end(shard: tarfile.TarFile) -> None:
    """Refuse a damaged header, which `tarfile` takes for the end of the archive."""
    assert shard.fileobj is not None
    shard.fileobj.seek(shard.offset)
    block = shard.fileobj.read(tarfile.BLOCKSIZE)
    if block and block != bytes(tarfile.BLOCKSIZE):
        raise tarfile.ReadError("a header is damaged")


def _add(
    sample: _Sample, ending: str, shard: tarfile.TarFile, member: tarfile.TarInfo, *, read: bool
) -> None:
    limit = _LARGEST_IMAGE if is_readable_suffix(f".{_split_ending(ending)[1]}") else _LARGEST_TEXT
    content = b""
    if member.size > limit:
        sample.fault = f"its {ending} has over {limit >> 20} MiB"
    elif read and (file := shard.extractfile(member)) is not None:
        content = file.read()
    sample.add(ending, content)

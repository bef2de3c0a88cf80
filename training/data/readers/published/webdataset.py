"""Shards of WebDataset and img2dataset: tar files; members of one name, up to its first dot, are a sample."""

import json
import tarfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from training.data.decoding.formats import is_readable_suffix
from training.data.readers.common.columns import describe
from training.data.readers.common.extraction import FOLDER, Extraction
from training.data.readers.common.image_files import walk_files
from training.data.readers.common.splits import draw_split, split_in
from training.data.readers.listing import Listing
from training.data.record import Record
from training.data.rejections import LeftOut, Rejection
from training.errors import DataError, ImageError

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
        fields: Names and values of the other members.
        unread: Endings of members that are neither image nor text.
        fault: Why a member cannot be used, if one cannot.
    """

    key: str
    images: dict[str, bytes] = field(default_factory=dict)
    fields: dict[str, object] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)
    fault: str = ""

    def __len__(self) -> int:
        return max(1, len(self.images))

    def add(self, ending: str, content: bytes) -> None:
        kind = ending.rpartition(".")[2]
        if is_readable_suffix(f".{kind}"):
            self.images[ending] = content
        elif kind in _TEXTS or kind == "json":
            self._add_text(kind, content)
        else:
            self.unread.append(kind)

    def _add_text(self, kind: str, content: bytes) -> None:
        try:
            text = content.decode("utf-8-sig")
            known = json.loads(text) if kind == "json" and text else text
        except (ValueError, RecursionError) as error:
            self.fault = f"its {kind} cannot be read: {error}"
            return
        if isinstance(known, dict):
            self.fields |= {name: value for name, value in known.items() if name not in _BOOKKEEPING}
        else:
            self.fields["caption" if kind == "json" else kind] = known


def list_webdataset(source: Path, out: Path) -> Listing:
    """Find the tar files in `source` and below, or take the one that it is; images go to `out`/images.

    Each image of a sample is a record. Its texts are those of `.txt` and of `caption` and its like in
    `.json`, its labels those of `.cls`; other values in `.json` are metadata. The split is the one that the
    path of the shard names, else drawn.

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
    unread = Counter[str]()
    for path in shards.values():
        for item in _samples(path, read=False):
            total += item.count if isinstance(item, LeftOut) else len(item)
            unread.update(() if isinstance(item, LeftOut) else item.unread)
    notes = [f"{count:,} .{kind} files of samples are not read." for kind, count in sorted(unread.items())]
    items = _read(shards, Extraction(out / FOLDER))
    return Listing(source, out / FOLDER, total, items, "image", notes=notes, extracted=True)


def _read(shards: Mapping[str, Path], extraction: Extraction) -> Iterator[Record | Rejection | LeftOut]:
    number = 0
    for shard, path in shards.items():
        for item in _samples(path, read=True):
            if isinstance(item, LeftOut):
                yield item
                continue
            for ending in item.images or ("",):
                number += 1
                try:
                    yield _to_record(item, ending, number, shard, extraction)
                except ImageError as error:
                    yield Rejection(number, f"{item.key!r}: {error}", shard)
    extraction.finish()


def _to_record(
    sample: _Sample, ending: str, number: int, shard: str, extraction: Extraction
) -> Record | Rejection:
    if sample.fault:
        return Rejection(number, f"{sample.key!r}: {sample.fault}", shard)
    if not ending:
        found = ", ".join(sample.fields) or "nothing that is read"
        return Rejection(number, f"{sample.key!r} has no image, only {found}", shard)
    known = describe(sample.fields)
    folder = next(shard.removesuffix(end) for end in reversed(_ENDINGS) if shard.endswith(end))
    inside, _, name = sample.key.rpartition("/")
    # "left" of left.jpg, where a sample has several images.
    part = ending.rpartition(".")[0] or (ending if len(sample.images) > 1 else "")
    name = f"{name}-{part.replace('.', '-')}" if part else name
    image = extraction.write(f"{folder}/{inside}", name, sample.images[ending])
    named = split_in(shard)
    return Record(
        id="-".join(f"{folder}/{inside}/{name}".replace("//", "/").split("/")),
        image=image,
        split=named or draw_split(known.group or f"{folder}/{sample.key}"),
        texts=known.texts,
        group=known.group or (f"{folder}/{sample.key}" if len(sample.images) > 1 else None),
        labels=known.labels,
        report=known.report,
        metadata=known.metadata,
        line=number,
        table=shard,
        drawn=named is None,
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
    limit = _LARGEST_IMAGE if is_readable_suffix(f".{ending.rpartition('.')[2]}") else _LARGEST_TEXT
    content = b""
    if member.size > limit:
        sample.fault = f"its {ending} has over {limit >> 20} MiB"
    elif read and (file := shard.extractfile(member)) is not None:
        content = file.read()
    sample.add(ending, content)

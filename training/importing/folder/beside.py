"""Texts beside images: 1.txt, or 1.jpg.txt, for 1.jpg, and report.txt for all images of its folder."""

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Final

from training.clinical.reports.report_text import described_report
from training.clinical.reports.sentences import report_sentences, split_sentences
from training.common.errors import DataError
from training.common.tables.encodings import decode_text
from training.common.tables.roles import NAMES, normal_name
from training.common.values import is_without_words
from training.importing.examples import Examples
from training.importing.folder.files import unreadable

_ENDINGS: Final = (".txt", ".caption")
_NUMBER: Final = re.compile(r"[\d.eE+-]+")
_LARGEST: Final = 1 << 20
# A folder with more images is not of one study.
_STUDY: Final = range(1, 51)
_REPORTS: Final = frozenset(
    (*NAMES["report"], *NAMES["findings"], *NAMES["impression"], "text", "study", "studie", "exam")
)
_OF_PROJECTS: Final = re.compile(r"(?:read_?me|licen[cs]e|copying|changelog|classes|requirements|urls?)\b.*")


def texts_beside(reasons: Mapping[str, str]) -> dict[str, str]:
    """The file with the text of each image that has one, by the path of the image.

    Where no image has one beside it, a name that one image and one text have tells it, as of images/1.jpg and
    reports/1.txt, if most texts are so told.

    Args:
        reasons: All files of a folder, with the reason why one is no image, or "" for an image.
    """
    texts: dict[str, list[str]] = {}
    for path in sorted(path for path, reason in reasons.items() if reason):
        suffix = PurePosixPath(path).suffix.lower()
        # Other reasons are those of files of systems.
        if suffix in _ENDINGS and reasons[path] == unreadable(suffix):
            texts.setdefault(_key(path[: -len(suffix)]), []).append(path)
    images = [path for path, reason in reasons.items() if not reason] if texts else []
    found = {image: text for image in images if (text := _text_of(image, texts)) is not None}
    if found or not texts:
        return found
    names = Counter(_key(PurePosixPath(image).stem) for image in images)
    lone = Counter(key.rpartition("/")[2] for key in texts)
    by_name = {
        name: paths[0]
        for key, paths in texts.items()
        if len(paths) == lone[name := key.rpartition("/")[2]] == 1
    }
    for image in images:
        name = _key(PurePosixPath(image).stem)
        if names[name] == 1 and name in by_name:
            found[image] = by_name[name]
    return found if 2 * len(found) > len(texts) else {}


def second_texts(reasons: Mapping[str, str], texts: Mapping[str, str]) -> Iterator[str]:
    """Name the texts of images that have another one: 1.caption beside 1.txt, or one whose case differs."""
    named = {
        _key(name): image for image in texts for name in (image, str(PurePosixPath(image).with_suffix("")))
    }
    used, examples = set(texts.values()), Examples()
    for path, reason in reasons.items():
        suffix = PurePosixPath(path).suffix.lower()
        image = named.get(_key(path[: -len(suffix)])) if suffix in _ENDINGS and reason else None
        if image is not None and path not in used:
            examples.add_words(partial(str, f"{path!r} beside {texts[image]!r}"), 0)
    if examples.count:
        yield f"{examples.times('text is', 'texts are')} not read, since the image has another: {examples}."


def lone_texts(reasons: Mapping[str, str], used: Collection[str]) -> dict[str, list[str]]:
    """The images of each folder that has one text alone, which no image is named like, by the path of it.

    Args:
        reasons: All files of a folder, with the reason why one is no image, or "" for an image.
        used: Texts of images.
    """
    texts: dict[str, list[str]] = {}
    images: dict[str, list[str]] = {}
    for path, reason in reasons.items():
        suffix = PurePosixPath(path).suffix.lower()
        if not reason:
            images.setdefault(path.rpartition("/")[0], []).append(path)
        elif suffix in _ENDINGS and reason == unreadable(suffix):
            texts.setdefault(path.rpartition("/")[0], []).append(path)
    return {
        several[0]: sorted(images[folder])
        for folder, several in sorted(texts.items())
        if len(several) == 1 and several[0] not in used and len(images.get(folder, ())) in _STUDY
    }


def is_named_report(path: str) -> bool:
    """Whether the name of a file says that it is a report, or is that of its folder."""
    file = PurePosixPath(path)
    name = normal_name(file.stem)
    return (
        name in _REPORTS or not _REPORTS.isdisjoint(name.split("_")) or name == normal_name(file.parent.name)
    )


def hint_on_lone(texts: Mapping[str, list[str]]) -> Iterator[str]:
    """Advice on texts that may be reports of their folders, as `lone_texts` finds them."""
    found = [path for path in texts if not _OF_PROJECTS.fullmatch(normal_name(PurePosixPath(path).stem))]
    if found:
        count = len(texts[found[0]])
        yield (
            f"{found[0]!r} is the only text in the folder of {count} {'image' if count == 1 else 'images'}: "
            "name it report.txt to have it taken as the report of all images there."
        )


def _text_of(image: str, texts: Mapping[str, list[str]]) -> str | None:
    """The text of an image; of several whose names differ by case, the one with its own."""
    names = image, image.removesuffix(PurePosixPath(image).suffix)
    found = next((paths for name in names if (paths := texts.get(_key(name)))), [])
    exact = [path for path in found if path.startswith(names[1])]
    return next(iter(exact or (found if len(found) == 1 else ())), None)


def _key(path: str) -> str:
    return unicodedata.normalize("NFC", path).casefold()


def read_text_beside(folder: Path, name: str, encoding: str | None) -> tuple[tuple[str, ...], str | None]:
    """The texts in a file beside an image, and the whole of it where it is a report of several sentences.

    Lines that are not of running text are a caption each.

    Args:
        folder: The folder of the images.
        name: Path of the file in it.
        encoding: Of a file without a byte order mark; UTF-8 without it.

    Raises:
        DataError: The file cannot be read, or is not in its encoding.
    """
    path = folder / name
    try:
        if path.stat().st_size > _LARGEST:
            raise DataError(f"the text {name!r} has over {_LARGEST >> 20} MiB")
        text = decode_text(path.read_bytes(), f"the text {name!r}", encoding).strip("\ufeff \n\t")
    except OSError as error:
        raise DataError(f"the text {name!r} cannot be read: {error.strerror or error}") from error
    # Lines of numbers alone are the boxes of objects.
    lines = [
        " ".join(line.split()) for line in text.splitlines() if not is_without_words(_NUMBER.sub("", line))
    ]
    if (report := described_report(text)) is not None:
        return report.sentences, report.text
    if not _is_running(text, lines):
        return tuple(dict.fromkeys(lines)), None
    return report_sentences([text]), text


def _is_running(text: str, lines: list[str]) -> bool:
    """Whether lines are wrapped, or paragraphs of sentences."""
    if any(len(split_sentences(line)) > 1 for line in lines):
        return True
    wrapped = bool(lines) and lines[0][:1].isupper() and any(line[:1].islower() for line in lines[1:])
    return len(lines) > 1 and (wrapped or "\n\n" in text)

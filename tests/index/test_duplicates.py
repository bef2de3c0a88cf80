"""Near-duplicates of a collection."""

import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from index.duplicates import find_duplicates, likely_pairs
from index.engine import SearchEngine
from index.errors import NoActiveGenerationError, UnknownCollectionError
from index.generations.activation import activate
from index.vectors.protocol import encode_vectors
from index.vectors.view import CosineView
from index.views.manager import Views
from index.writes.images import ImageWrite, PictureWrite, write_images
from tests.index.homes import in_write
from tests.index.meanwhile import note_calls
from tests.index.pictures import smooth_picture
from tests.index.samples import begin_generation, ingest, unit_vectors
from training.common.manifest import Record, read_manifest, write_manifest
from training.models.encoder import Encoder

COUNT = 20
COPIES = [("03", "03-same"), ("05", "05-coarse", "05-small"), ("07", "07-cropped")]


@pytest.fixture
def pictures(tmp_path: Path) -> list[Path]:
    """Twenty pictures, of which 3 has an equal file, 5 two changed ones, and 7 one that is cropped."""
    folder = tmp_path / "pictures"
    folder.mkdir()
    for number in range(COUNT):
        smooth_picture(number).save(folder / f"{number:02d}.png")
    shutil.copy(folder / "03.png", folder / "03-same.png")
    smooth_picture(5).resize((100, 80)).save(folder / "05-small.png")
    smooth_picture(5).save(folder / "05-coarse.jpg", quality=40)
    smooth_picture(7).crop((10, 0, 196, 150)).save(folder / "07-cropped.png")
    return sorted(folder.iterdir(), key=lambda path: path.stem)


@pytest.fixture
def filled(engine: SearchEngine, encoder: Encoder, pictures: list[Path]) -> SearchEngine:
    folder = pictures[0].parent
    write_manifest(folder, [Record(id=path.stem, image=path.name, split="test") for path in pictures])
    ingest(engine, encoder, read_manifest(folder))
    return engine


@pytest.mark.parametrize("damaged", [False, True])
def test_copies_are_found_and_nothing_else_and_a_damaged_file_is_named(
    filled: SearchEngine, monkeypatch: pytest.MonkeyPatch, damaged: bool
) -> None:
    if damaged:
        filled.image_path("c", "05-coarse").write_bytes(b"damaged")
    bars, done = list[tuple[str, int, bool]](), Counter[str]()

    @contextmanager
    def noted(what: str, total: int, *, shown: bool) -> Iterator[SimpleNamespace]:
        bars.append((what, total, shown))
        yield SimpleNamespace(advance=lambda count=1: done.update({what: count}))

    monkeypatch.setattr("index.duplicates.progress_bar", noted)
    result = find_duplicates(filled.home, "c")
    # 24 images have 23 different files.
    whats = ["Reading pictures", *["Comparing vectors"] * 2, "Looking at pairs"]
    totals = [23, 23, 22 if damaged else 23, result.looked_at]
    assert bars == [(what, total, True) for what, total in zip(whats, totals, strict=True)]
    assert [done[what] for what in whats] == [totals[0], *[totals[1] + totals[2]] * 2, totals[3]]
    assert [group.ids for group in result.groups] == [
        COPIES[0],
        ("05", "05-small") if damaged else COPIES[1],
        COPIES[2],
    ]
    assert [group.same_file for group in result.groups] == [True, False, False]
    assert result.unread == (("05-coarse",) if damaged else ())


def test_images_of_one_colour_are_no_copies_of_each_other(
    engine: SearchEngine, encoder: Encoder, tmp_path: Path
) -> None:
    for number, colour in enumerate(("black", "white", "gray", "black", "teal")):
        image = Image.new("RGB", (100 + 20 * number, 80), colour)
        for suffix in ("png", "jpg", "gif"):
            image.save(tmp_path / f"{number}.{suffix}")
    for number in range(4):
        smooth_picture(number).save(tmp_path / f"picture-{number}.png")
    paths = [path for path in sorted(tmp_path.iterdir()) if path.suffix in (".png", ".jpg", ".gif")]
    write_manifest(tmp_path, [Record(id=path.name, image=path.name, split="test") for path in paths])
    ingest(engine, encoder, read_manifest(tmp_path))
    assert find_duplicates(engine.home, "c", show_progress=False).groups == ()


def test_what_cannot_be_looked_through_is_refused(engine: SearchEngine) -> None:
    with pytest.raises(UnknownCollectionError):
        find_duplicates(engine.home, "nothing", show_progress=False)
    begin_generation(engine, "empty", 4)
    with pytest.raises(NoActiveGenerationError):
        find_duplicates(engine.home, "empty", show_progress=False)


def test_what_looking_began_to_build_is_stopped(
    filled: SearchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = note_calls(monkeypatch, Views, "close")
    find_duplicates(filled.home, "c", show_progress=False)
    with pytest.raises(UnknownCollectionError):
        find_duplicates(filled.home, "nothing", show_progress=False)
    assert len(closed) == 2


def test_copies_are_found_whatever_the_vectors_say(sqlite: SearchEngine, pictures: list[Path]) -> None:
    """Here they point anywhere: sketches name the pairs."""
    generation = begin_generation(sqlite, "c", 6)
    writes = []
    for path, vector in zip(pictures, encode_vectors(unit_vectors(len(pictures), 6)), strict=True):
        record = Record(id=path.stem, image=path.name, split="test")
        sha256 = sqlite.home.store.put(path.read_bytes())
        picture = PictureWrite(sha256, "image/png", 200, 160, vector)
        writes.append(ImageWrite(record, picture))
    in_write(sqlite, write_images, generation, writes)
    in_write(sqlite, activate, generation)
    duplicates = find_duplicates(sqlite.home, "c", show_progress=False)
    assert [group.ids for group in duplicates.groups] == COPIES


@pytest.mark.parametrize("unsigned", [False, True])
def test_likely_pairs_equal_the_definition(monkeypatch: pytest.MonkeyPatch, unsigned: bool) -> None:
    """Over several blocks of rows and columns the same pairs as by sorting all similarities."""
    monkeypatch.setattr("index.duplicates._ROWS", 40)
    monkeypatch.setattr("index.duplicates._COLUMNS", 70)
    count, nearest = 150, 5
    vectors = unit_vectors(count, 6)
    keys = np.arange(count, dtype=np.int64) * 3 + 1
    view = CosineView(6)
    view.add(keys, vectors)
    vectors = view.vectors(keys)
    alike = np.abs(vectors @ vectors.T) if unsigned else vectors @ vectors.T
    threshold = np.quantile(alike[np.triu_indices(count, 1)], 1 - nearest / count)
    expected = set()
    for row in range(count):
        near = [position for position in np.argsort(-alike[row]) if position != row][:nearest]
        for position in near:
            if alike[row, position] >= threshold:
                expected.add((int(keys[min(row, position)]), int(keys[max(row, position)])))
    assert likely_pairs(view, keys, unsigned=unsigned) == expected
    assert likely_pairs(view, keys[:0]) == set()
    # Of so few each is near to all others.
    assert likely_pairs(view, keys[:6]) == set(combinations(keys[:6].tolist(), 2))
    assert len(likely_pairs(view, keys[:7])) < 21

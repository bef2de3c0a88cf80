"""Damaged files in an import: each is taken or told why not, soon, and no reason has a word of it."""

import random
import time
from pathlib import Path

import pytest

from tests.dicom_films import MARKER, encoded
from tests.dicom_markers import jpeg_film, marked_film
from training.data.readers.dicom.examination import Rules, examine
from training.data.readers.dicom.places import Place

_WORDS = (b"SQ", b"OB", b"UN", b"US", b"PN", b"OW", b"\xff\xff", b"\xfe\xff\x00\xe0")


def _damaged(content: bytes, draw: random.Random) -> bytes:
    """Change bytes, lengths and representations, cut pieces out and put others in; mostly in the header."""
    damaged = bytearray(content)
    for _ in range(draw.choice((1, 1, 2, 5, 20))):
        place = draw.randrange(len(damaged) if draw.random() < 0.3 else min(len(damaged), 3000))
        match draw.randrange(5):
            case 0:
                damaged[place] = draw.randrange(256)
            case 1:
                damaged[place : place + 4] = b"\xff\xff\xff\xff"
            case 2:
                del damaged[place : place + draw.randrange(1, 40)]
            case 3:
                damaged[place:place] = draw.randbytes(8)
            case _:
                word = draw.choice(_WORDS)
                damaged[place : place + len(word)] = word
    return bytes(damaged)


@pytest.mark.parametrize("seed", range(4))
def test_damaged_files_end_in_an_outcome_without_their_words(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    films = [encoded(marked_film(1)), encoded(jpeg_film(2))]
    rules, outcomes = Rules(tmp_path, b"key"), set()
    for number in range(60):
        (tmp_path / "film").write_bytes(_damaged(draw.choice(films), draw))
        started = time.perf_counter()
        examined = examine(Place(number, tmp_path / "film"), rules)
        assert time.perf_counter() - started < 2
        reason = examined.refused or examined.left_out or examined.quarantined
        assert reason or examined.films
        assert MARKER not in reason and MARKER not in repr(examined.metadata)
        outcomes.add(bool(examined.refused))
    assert outcomes == {True, False}

"""Damaged files in an import: each is taken or told why not, soon, and no reason has a word of it."""

import random
import time
from pathlib import Path

import pytest

from tests.dicom_films import MARKER, encoded, make_film
from tests.dicom_markers import jpeg_film, marked_film
from training.imaging.images import decode_whole
from training.importing.dicom.examination import Rules, examine
from training.importing.dicom.importing import import_dicom
from training.importing.dicom.places import Place

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


@pytest.mark.parametrize("representation", [b"US", b"SS", b"UL", b"SL", b"FD"])
@pytest.mark.parametrize("number", [0x1050, 0x1051, 0x1052, 0x1053])
def test_numbers_in_another_representation_leave_the_picture_as_it_is(
    tmp_path: Path, number: int, representation: bytes
) -> None:
    film = make_film(1)
    film.WindowCenter, film.WindowWidth, film.RescaleIntercept, film.RescaleSlope = (
        "40000001",
        *["16000001"] * 3,
    )
    content = bytearray(encoded(film))
    place = content.index(b"\x28\0" + number.to_bytes(2, "little") + b"DS")
    content[place + 4 : place + 6] = representation
    (tmp_path / "film").write_bytes(content)
    examined = examine(Place(1, tmp_path / "film"), Rules(tmp_path, b"key"))
    assert not examined.refused
    (aside,) = examined.aside.values()
    assert decode_whole(aside).pixels.tobytes() == decode_whole(bytes(content)).pixels.tobytes()


@pytest.mark.slow
def test_an_import_takes_all_other_films_where_one_is_damaged(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for number in range(1, 4):
        (source / str(number)).write_bytes(encoded(make_film(number)))
    damaged = encoded(make_film(4)).replace(b"\x28\0\x50\x10DS", b"\x28\0\x50\x10US")
    (source / "4").write_bytes(damaged)
    # Without a single pixel.
    (source / "5").write_bytes(encoded(make_film(5))[:2000])
    report = import_dicom(source, tmp_path / "out", key=b"key", max_rejected=0.5)
    (tally,) = report.tallies
    assert (tally.found, tally.taken, tally.refused, tally.unaccounted) == (5, 4, 1, 0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 4))])
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

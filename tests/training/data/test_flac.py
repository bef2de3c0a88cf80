"""FLAC files, written bit by bit as RFC 9639 says, and one from the reference encoder."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.training.data.sounds import Bits, flac, subframe, verbatim
from training.data.flac import decode_flac, read_flac_header
from training.errors import AudioError

VALUES = [5, -3, 1200, -32768, 32767, 0, 7, 7, 7, -1, 2, 40, 41, 43, 46, 50]


def decode(content: bytes, most: int = 10**9) -> NDArray[np.int64]:
    return decode_flac(content, read_flac_header(content), most)


def residual_of(values: list[int], coefficients: list[int], shift: int = 0) -> list[int]:
    order = len(coefficients)
    found = []
    for place in range(order, len(values)):
        before = values[place - order : place][::-1]
        found.append(values[place] - (sum(map(lambda c, v: c * v, coefficients, before)) >> shift))
    return found


def test_the_header_says_what_streaminfo_says() -> None:
    content = flac([(16, 1, [verbatim(VALUES), verbatim(VALUES)])], channels=2, rate=44_100)
    header = read_flac_header(content)
    assert (header.sample_rate, header.channels, header.bits, header.samples) == (44_100, 2, 16, 16)


def test_plain_and_constant_subframes() -> None:
    assert decode(flac([(16, 0, [verbatim(VALUES)])])).tolist() == [VALUES]
    assert decode(flac([(16, 0, [subframe(0).put(-9, 16)])])).tolist() == [[-9] * 16]


@pytest.mark.parametrize("order", range(5))
@pytest.mark.parametrize("parameter", [0, 3, 14])
def test_fixed_predictors(order: int, parameter: int) -> None:
    values = [3 * n * n - 40 * n + (n % 3) for n in range(32)]
    coefficients = [[], [1], [2, -1], [3, -3, 1], [4, -6, 4, -1]][order]
    bits = subframe(8 + order).put_all(values[:order], 16).put(0, 2).put(0, 4).put(parameter, 4)
    bits.put_rice(residual_of(values, coefficients), parameter)
    assert decode(flac([(32, 0, [bits])])).tolist() == [values]


def test_linear_predictor_with_shift_and_partitions() -> None:
    rng = np.random.default_rng(0)
    values = rng.integers(-2000, 2000, 64).tolist()
    coefficients = [1201, -655, 87]
    residual = residual_of(values, coefficients, 9)
    bits = subframe(32 + 2).put_all(values[:3], 16).put(12 - 1, 4).put(9, 5).put_all(coefficients, 12)
    bits.put(1, 2).put(2, 4)
    # Four partitions of 16, the first without the three first samples; the third is not coded.
    for number, parameter in enumerate([10, 9, 31, 20]):
        part = residual[max(0, 16 * number - 3) : 16 * number + 13]
        bits.put(parameter, 5)
        bits = bits.put(15, 5).put_all(part, 15) if parameter == 31 else bits.put_rice(part, parameter)
    assert decode(flac([(64, 0, [bits])])).tolist() == [values]


def test_wasted_bits_are_put_back() -> None:
    bits = subframe(1, wasted=4).put_all([value // 16 for value in VALUES], 12)
    assert decode(flac([(16, 0, [bits])])).tolist() == [[value // 16 * 16 for value in VALUES]]


@pytest.mark.parametrize("assignment", [1, 8, 9, 10])
def test_channels_stored_as_differences(assignment: int) -> None:
    left, right = np.array(VALUES), np.array(VALUES[::-1])
    side, middle = left - right, (left + right) >> 1
    first, second = {1: (left, right), 8: (left, side), 9: (side, right), 10: (middle, side)}[assignment]
    widths = [17 if channel is side else 16 for channel in (first, second)]
    bits = [verbatim(channel, width) for channel, width in zip((first, second), widths, strict=True)]
    found = decode(flac([(16, assignment, bits)], channels=2))
    assert found.tolist() == [left.tolist(), right.tolist()]


def test_frames_follow_each_other_and_only_what_is_wanted_is_read() -> None:
    content = flac([(16, 0, [verbatim(VALUES)]), (3, 0, [verbatim([1, 2, 3])])])
    assert decode(content).tolist() == [[*VALUES, 1, 2, 3]]
    assert decode(content[:-9], most=10).tolist() == [VALUES[:10]]
    streamed = flac([(16, 0, [verbatim(VALUES)]), (3, 0, [verbatim([1, 2, 3])])], samples=0)
    assert decode(streamed).tolist() == [[*VALUES, 1, 2, 3]]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(-(2**15), 2**15 - 1), min_size=1, max_size=60),
    st.integers(0, 4),
    st.integers(6, 14),
)
def test_any_samples_come_back(values: list[int], order: int, parameter: int) -> None:
    order = min(order, len(values))
    coefficients = [[], [1], [2, -1], [3, -3, 1], [4, -6, 4, -1]][order]
    bits = subframe(8 + order).put_all(values[:order], 16).put(0, 2).put(0, 4).put(parameter, 4)
    bits.put_rice(residual_of(values, coefficients), parameter)
    assert decode(flac([(len(values), 0, [bits])])).tolist() == [values]


GOOD = flac([(16, 0, [verbatim(VALUES)])])


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (GOOD[:20], "ends too early"),
        (GOOD[:6], "ends within its header"),
        (GOOD[:4] + b"\x01" + GOOD[5:], "does not begin with STREAMINFO"),
        (GOOD[:-4], "it ends too early"),
        (GOOD[:-20] + b"\x55" + GOOD[-19:], "checksum of frame 1 is wrong"),
        (flac([(16, 0, [verbatim(VALUES)])], rate=0), "no sample rate"),
        (flac([(16, 1, [verbatim(VALUES), verbatim(VALUES)])]), "other channels"),
        (flac([(16, 11, [verbatim(VALUES)])], channels=2), "other channels"),
        (flac([(16, 0, [subframe(2)])]), "no known kind"),
        (flac([(2, 0, [subframe(12).put(0, 99)])]), "no known kind"),
        (flac([(16, 0, [Bits().put(1, 1).put(0, 99)])]), "does not begin with a zero"),
        (flac([(16, 0, [subframe(8).put(2, 2).put(0, 99)])]), "no known way"),
        (flac([(16, 0, [subframe(8).put(0, 2).put(5, 4).put(0, 99)])]), "no known way"),
        (flac([(16, 0, [subframe(32).put(0, 16).put(15, 4).put(0, 99)])]), "no precision"),
        (flac([(16, 0, [subframe(1, wasted=16).put(0, 99)])]), "wastes all its bits"),
        (flac([(16, 0, [subframe(8).put(0, 2).put(0, 4).put(0, 4).put(0, 999)])]), "ends too early"),
        (GOOD + b"\0" * 40, None),
        (flac([(16, 0, [verbatim(VALUES)])], samples=17), "ends too early"),
    ],
)
def test_damage_is_named(content: bytes, reason: str | None) -> None:
    if reason is None:
        assert decode(content).tolist() == [VALUES]
        return
    with pytest.raises(AudioError, match=reason):
        decode(content)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, len(GOOD) - 1), st.integers(1, 255))
def test_a_changed_byte_never_does_more_than_raise(place: int, change: int) -> None:
    content = bytearray(GOOD)
    content[place] ^= change
    refuse_or_decode(bytes(content), decode)


def refuse_or_decode(content: bytes, read: Callable[[bytes], NDArray[np.int64]]) -> None:
    try:
        read(content)
    except AudioError:
        return


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_behind_a_header_are_refused_or_decoded(frames: bytes) -> None:
    refuse_or_decode(GOOD[: read_flac_header(GOOD).first_frame] + frames, decode)


def test_a_file_of_the_reference_library() -> None:
    # Written by libFLAC 1.4.3 at its highest compression: linear prediction, the second channel a difference.
    content = (Path(__file__).parent / "reference.flac").read_bytes()
    steps = np.arange(1500)
    left = np.round(9000 * np.sin(steps / 9) + 3000 * np.sin(steps / 3.1)).astype(np.int64)
    right = np.round(0.9 * left).astype(np.int64) + steps * steps * 7919 % 13 - 6
    assert read_flac_header(content).sample_rate == 22_050
    assert np.array_equal(decode(content), [left, right])

import struct
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.training.data.sounds import wav
from training.data.wav import decode_wav, is_wav, read_wav_header
from training.errors import AudioError

GUID = bytes.fromhex("000000001000800000aa00389b71")


def decode(content: bytes, most: int = 10**9) -> list[list[float]]:
    samples: list[list[float]] = decode_wav(content, read_wav_header(content), most).tolist()
    return samples


@pytest.mark.parametrize(
    ("raw", "code", "bits", "expected"),
    [
        (bytes([0, 64, 128, 192, 255]), 1, 8, [-1, -0.5, 0, 0.5, 127 / 128]),
        (struct.pack("<3h", -32768, 1, 16384), 1, 16, [-1, 2**-15, 0.5]),
        (b"\x00\x00\x80" + b"\x01\x00\x00" + b"\x00\x00\x40", 1, 24, [-1, 2**-23, 0.5]),
        (struct.pack("<3i", -(2**31), 2**20, 2**30), 1, 32, [-1, 2**-11, 0.5]),
        (struct.pack("<3f", -1.5, 0.25, 1e-8), 3, 32, [-1.5, 0.25, np.float32(1e-8)]),
        (struct.pack("<2d", -0.75, 0.125), 3, 64, [-0.75, 0.125]),
    ],
)
@pytest.mark.parametrize("extensible", [False, True])
def test_every_kind_of_sample(
    raw: bytes, code: int, bits: int, expected: list[float], extensible: bool
) -> None:
    extra = struct.pack("<HHIH", 22, bits, 0, code) + GUID if extensible else b""
    content = wav(raw, code=0xFFFE if extensible else code, bits=bits, extra=extra)
    assert is_wav(content)
    assert decode(content) == [expected]
    assert read_wav_header(content).samples == len(expected)


def test_channels_are_apart_and_only_what_is_wanted_is_decoded() -> None:
    content = wav(struct.pack("<6h", 0, 16384, -16384, 0, 8192, 1), channels=2, rate=44_100)
    header = read_wav_header(content)
    assert (header.channels, header.sample_rate, header.samples) == (2, 44_100, 3)
    assert decode(content, most=2) == [[0, -0.5], [0.5, 0]]


def test_other_chunks_are_passed_over_and_those_of_odd_length_are_filled() -> None:
    before = b"LIST" + struct.pack("<I", 3) + b"abc\0"
    assert decode(wav(struct.pack("<h", 16384), before=before)) == [[0.5]]


def test_a_stream_of_unknown_length_goes_to_the_end() -> None:
    assert decode(wav(struct.pack("<2h", 16384, 0) + b"\x01", size=0xFFFFFFFF)) == [[0.5, 0]]


def cut(content: bytes) -> bytes:
    return content[:-1]


def no_format(content: bytes) -> bytes:
    return content.replace(b"fmt ", b"fmtx")


def short_format(content: bytes) -> bytes:
    place = content.index(b"fmt ")
    return content[: place + 4] + struct.pack("<I", 4) + content[place + 8 :]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (cut(wav(b"\0\0")), "ends before its last sample"),
        (wav(b"\0\0", size=1 << 30), "ends before its last sample"),
        (no_format(wav(b"\0\0")), "before their format"),
        (short_format(wav(b"\0\0")), "format chunk is too short"),
        (wav(b"\0\0")[:36], "no samples"),
        (b"RIFF\0\0\0\0WAVE", "no samples"),
        (wav(b"\0\0", code=6, bits=8), r"format 6, 8 bits\): save it as PCM"),
        (wav(b"\0\0", bits=12), "format 1, 12 bits"),
        (wav(b"\0\0", channels=0), "do not fit"),
        (wav(b"\0\0", rate=0), "do not fit"),
        (wav(struct.pack("<f", float("nan")), code=3, bits=32), "not numbers"),
        (wav(struct.pack("<f", float("inf")), code=3, bits=32), "not numbers"),
        (wav(struct.pack("<d", 1e300), code=3, bits=64), "far beyond full scale"),
        (wav(struct.pack("<f", 1e10), code=3, bits=32), "far beyond full scale"),
    ],
)
def test_damage_is_named(content: bytes, reason: str) -> None:
    with pytest.raises(AudioError, match=reason):
        decode(content)


GOOD = wav(struct.pack("<8h", *range(8)))


@settings(max_examples=80, deadline=None)
@given(st.integers(12, len(GOOD) - 1), st.integers(1, 255))
def test_a_changed_byte_never_does_more_than_raise(place: int, change: int) -> None:
    content = bytearray(GOOD)
    content[place] ^= change
    read_or_refuse(decode, bytes(content))


@settings(max_examples=80, deadline=None)
@given(st.binary(max_size=80))
def test_any_bytes_behind_the_beginning_are_refused_or_decoded(rest: bytes) -> None:
    read_or_refuse(decode, GOOD[:12] + rest)


def read_or_refuse(read: Callable[[bytes], object], content: bytes) -> None:
    try:
        read(content)
    except AudioError:
        return

"""FLAC files (RFC 9639): what the header says, and the samples of all channels, restored exactly."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from training.data.flac_bits import BitReader, crc16
from training.errors import AudioError

Samples = NDArray[np.int64]

_MAGIC: Final = b"fLaC"
_STREAMINFO_BYTES: Final = 34
_SYNC: Final = 0b11111111111110
_BLOCK_SIZES: Final = {
    1: 192,
    **{code: 576 << code - 2 for code in range(2, 6)},
    **{code: 256 << code - 8 for code in range(8, 16)},
}
_SAMPLE_SIZES: Final = {1: 8, 2: 12, 4: 16, 5: 20, 6: 24, 7: 32}
_FIXED: Final = ((), (1,), (2, -1), (3, -3, 1), (4, -6, 4, -1))
_LEFT_SIDE, _RIGHT_SIDE, _MID_SIDE = 8, 9, 10
# Subframes are restored side by side, since a prediction needs the sample before it.
_SIDE_BY_SIDE: Final = 256
_LONGEST_PREDICTOR: Final = 32


@dataclass(frozen=True, slots=True)
class FlacHeader:
    """What STREAMINFO says; `samples` of each channel are 0 where the encoder did not know."""

    sample_rate: int
    channels: int
    bits: int
    samples: int
    first_frame: int


@dataclass(frozen=True, slots=True)
class _Subframe:
    """Residuals (N,) behind `len(coefficients)` first samples, and how a sample follows from those before."""

    values: Samples
    coefficients: Sequence[int]
    shift: int
    wasted: int


@dataclass(frozen=True, slots=True)
class _Frame:
    assignment: int
    subframes: tuple[_Subframe, ...]


def is_flac(content: bytes) -> bool:
    """Whether the bytes begin as a FLAC file does."""
    return content.startswith(_MAGIC)


def read_flac_header(content: bytes) -> FlacHeader:
    """Read STREAMINFO and find the first frame, without decoding any.

    Raises:
        AudioError: The header is damaged.
    """
    position = len(_MAGIC)
    header = None
    last = False
    while not last:
        if position + 4 > len(content):
            raise AudioError("The FLAC file is damaged: it ends within its header.")
        last, kind = content[position] >> 7 == 1, content[position] & 127
        length = int.from_bytes(content[position + 1 : position + 4], "big")
        if header is None and (kind != 0 or length != _STREAMINFO_BYTES):
            raise AudioError("The header of the FLAC file is damaged: it does not begin with STREAMINFO.")
        position += 4
        if header is None:
            reader = BitReader(content, position + 10)
            header = (reader.read(20), reader.read(3) + 1, reader.read(5) + 1, reader.read(36))
        position += length
    assert header is not None
    if header[0] == 0 or header[2] < 4:
        raise AudioError("The header of the FLAC file is damaged: it gives no sample rate or sample size.")
    return FlacHeader(*header, first_frame=position)


def decode_flac(content: bytes, header: FlacHeader, most: int) -> Samples:
    """The first samples (C, N) of all channels, at most `most` of each.

    Raises:
        AudioError: The file is damaged.
    """
    reader = BitReader(content, header.first_frame)
    frames: list[_Frame] = []
    wanted = min(most, header.samples or most)
    count = 0
    while count < wanted and not (header.samples == 0 and reader.at_end):
        start = reader.byte_position
        frames.append(_read_frame(reader, header))
        reader.align()
        stored = reader.read(16)
        if stored != crc16(content[start : reader.byte_position - 2]):
            raise AudioError(f"The FLAC file is damaged: the checksum of frame {len(frames)} is wrong.")
        count += len(frames[-1].subframes[0].values)
    restored = _restore([subframe for frame in frames for subframe in frame.subframes])
    rows = [
        _channels(frame.assignment, restored[index * header.channels : (index + 1) * header.channels])
        for index, frame in enumerate(frames)
    ]
    samples = np.concatenate(rows, axis=1) if rows else np.zeros((header.channels, 0), dtype=np.int64)
    if np.abs(samples).max(initial=0) > 1 << header.bits - 1:
        raise AudioError("The FLAC file is damaged: it has samples beyond its own sample size.")
    return samples[:, :wanted]


def _read_frame(reader: BitReader, header: FlacHeader) -> _Frame:
    if reader.read(14) != _SYNC:
        raise AudioError("The FLAC file is damaged: there is no frame where one should begin.")
    reader.skip(2)
    block_code, rate_code = reader.read(4), reader.read(4)
    assignment, size_code = reader.read(4), reader.read(3)
    reader.skip(1)
    _skip_number(reader)
    length = _block_size(reader, block_code)
    reader.skip({12: 8, 13: 16, 14: 16}.get(rate_code, 0))
    reader.skip(8)
    channels = 2 if assignment >= _LEFT_SIDE else assignment + 1
    bits = header.bits if size_code == 0 else _SAMPLE_SIZES.get(size_code)
    if assignment > _MID_SIDE or channels != header.channels or bits != header.bits or rate_code == 15:
        raise AudioError("The FLAC file is damaged: a frame has other channels or sizes than its header.")
    side = {_LEFT_SIDE: 1, _RIGHT_SIDE: 0, _MID_SIDE: 1}.get(assignment)
    return _Frame(
        assignment,
        tuple(_read_subframe(reader, length, bits + (channel == side)) for channel in range(channels)),
    )


def _skip_number(reader: BitReader) -> None:
    """Pass over the frame's number, coded like a character in UTF-8 of up to seven bytes."""
    first = reader.read(8)
    following = 0
    while first & 0x80 >> following and following < 8:
        following += 1
    if following in (1, 8):
        raise AudioError("The FLAC file is damaged: a frame has no number.")
    reader.skip(8 * max(0, following - 1))


def _block_size(reader: BitReader, code: int) -> int:
    if code == 6:
        return reader.read(8) + 1
    if code == 7:
        return reader.read(16) + 1
    if code == 0:
        raise AudioError("The FLAC file is damaged: a frame has no length.")
    return _BLOCK_SIZES[code]


def _read_subframe(reader: BitReader, length: int, bits: int) -> _Subframe:
    if reader.read(1):
        raise AudioError("The FLAC file is damaged: a subframe does not begin with a zero.")
    kind = reader.read(6)
    wasted = reader.read_unary(bits) + 1 if reader.read(1) else 0
    bits -= wasted
    if bits < 1:
        raise AudioError("The FLAC file is damaged: a subframe wastes all its bits.")
    if kind == 0:
        return _Subframe(np.full(length, reader.read_signed(bits), dtype=np.int64), (), 0, wasted)
    if kind == 1:
        return _Subframe(reader.read_array(length, bits), (), 0, wasted)
    order = kind - 8 if 8 <= kind <= 12 else kind - 31 if kind >= 32 else None
    if order is None or order > length:
        raise AudioError("The FLAC file is damaged: a subframe is of no known kind.")
    first = reader.read_array(order, bits)
    coefficients: Sequence[int] = _FIXED[order] if kind < 32 else ()
    shift = 0
    if kind >= 32:
        precision, shift = reader.read(4) + 1, reader.read_signed(5)
        if precision == 16 or shift < 0:
            raise AudioError("The FLAC file is damaged: a predictor has no precision.")
        coefficients = reader.read_array(order, precision).tolist()
    residual = _read_residual(reader, length, order)
    return _Subframe(np.concatenate([first, residual]), coefficients, shift, wasted)


def _read_residual(reader: BitReader, length: int, order: int) -> Samples:
    method, partition_order = reader.read(2), reader.read(4)
    per_partition = length >> partition_order
    if method > 1 or per_partition << partition_order != length or per_partition < order:
        raise AudioError("The FLAC file is damaged: its residual is coded in no known way.")
    width = 4 + method
    parts = []
    for number in range(1 << partition_order):
        parameter = reader.read(width)
        count = per_partition - (order if number == 0 else 0)
        if parameter == (1 << width) - 1:
            parts.append(reader.read_array(count, reader.read(5)))
        else:
            parts.append(reader.read_rice(count, parameter))
    return np.concatenate(parts)


def _restore(subframes: Sequence[_Subframe]) -> list[Samples]:
    """The samples of each subframe."""
    restored: list[Samples] = [subframe.values for subframe in subframes]
    predicted = [row for row, subframe in enumerate(subframes) if subframe.coefficients]
    predicted.sort(key=lambda row: len(subframes[row].values))
    for start in range(0, len(predicted), _SIDE_BY_SIDE):
        rows = predicted[start : start + _SIDE_BY_SIDE]
        for row, samples in zip(rows, _predict([subframes[row] for row in rows]), strict=True):
            restored[row] = samples
    return [samples << subframe.wasted for samples, subframe in zip(restored, subframes, strict=True)]


def _predict(subframes: Sequence[_Subframe]) -> list[Samples]:
    """Run the predictors of many subframes at once, one step of time after another."""
    pad, longest = _LONGEST_PREDICTOR, max(len(subframe.values) for subframe in subframes)
    reach = max(len(subframe.coefficients) for subframe in subframes)
    samples = np.zeros((longest + pad, len(subframes)), dtype=np.int64)
    weights = np.zeros((reach, len(subframes)), dtype=np.int64)
    orders = np.array([len(subframe.coefficients) for subframe in subframes])
    shifts = np.array([subframe.shift for subframe in subframes], dtype=np.int64)
    for column, subframe in enumerate(subframes):
        samples[pad : pad + len(subframe.values), column] = subframe.values
        # The first coefficient belongs to the latest sample.
        weights[reach - orders[column] :, column] = subframe.coefficients[::-1]
    for time in range(longest):
        before = samples[pad + time - reach : pad + time]
        prediction = np.einsum("tc,tc->c", weights, before) >> shifts
        samples[pad + time] += prediction if time >= reach else np.where(time >= orders, prediction, 0)
    return [samples[pad : pad + len(s.values), column] for column, s in enumerate(subframes)]


def _channels(assignment: int, samples: Sequence[Samples]) -> Samples:
    """The channels (C, N) of a frame, whose second may be stored as a difference."""
    if assignment < _LEFT_SIDE:
        return np.stack(samples)
    first, second = samples
    if assignment == _LEFT_SIDE:
        return np.stack([first, first - second])
    if assignment == _RIGHT_SIDE:
        return np.stack([first + second, second])
    middle = (first << 1) | (second & 1)
    return np.stack([(middle + second) >> 1, (middle - second) >> 1])

"""Files decoded for training and indexing: DICOM in processes, with the results and errors of this one."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from PIL import Image

from tests.dicom_colour_forms import COLOUR_FORMS
from tests.dicom_films import encoded as dicom
from tests.dicom_films import make_film
from tests.dicom_grey_forms import GREY_FORMS
from tests.training.imaging.processes.decoding import (
    FILES,
    MIB,
    PATIENCE,
    WORKER,
    decoders_of,
    is_there,
    kill_a_decoder_at_work,
    slow_film,
    status,
    wait_until,
)
from training.common.errors import ImageError
from training.imaging.images import DecodedImage, ImageLimits, decode_whole
from training.imaging.processes import file_decoder
from training.imaging.processes.file_decoder import FileDecoder
from training.imaging.processes.pool import DecodersClosedError, DecoderStartError
from training.imaging.resizing import Square, to_square

# One film of each transfer syntax, signed ones and such with padding among them, and all forms of colour.
FILMS = {form.syntax: form.make for form in GREY_FORMS} | {form.name: form.make for form in COLOUR_FORMS}

_SCRIPT: Final = """
from pathlib import Path
from training.imaging.processes.file_decoder import FileDecoder
with FileDecoder(1) as decoder:
    Path("width").write_text(str(decoder.decode(Path("film")).width))
"""


@pytest.fixture
def decoder() -> Iterator[FileDecoder]:
    with FileDecoder(1) as made:
        yield made


def same(one: DecodedImage, other: DecodedImage) -> bool:
    """Whether two results have the same pixels to the bit, and say the same."""
    plain = [replace(image, pixels=Image.new("1", (1, 1))) for image in (one, other)]
    return plain[0] == plain[1] and np.array_equal(np.asarray(one.pixels), np.asarray(other.pixels))


@pytest.mark.slow
def test_films_in_every_transfer_syntax_are_those_of_this_process_to_the_bit(
    decoder: FileDecoder, tmp_path: Path
) -> None:
    square = Square(16, "crop")
    for name, make in FILMS.items():
        content = make()
        (tmp_path / "film").write_bytes(content)
        expected = decode_whole(content)
        assert same(decoder.decode(content), expected), name
        assert same(decoder.decode(tmp_path / "film", min_side=32), expected), name
        resized = decoder.decode(content, square=square)
        assert resized.pixels.tobytes() == to_square(expected.pixels, square).tobytes(), name
        assert (resized.width, resized.height) == (expected.width, expected.height), name
    assert len(decoders_of(os.getpid())) == 1


def test_other_files_are_decoded_without_a_process(decoder: FileDecoder) -> None:
    square = Square(16, "pad")
    for name, content in FILES.items():
        for min_side in (None, 32):
            expected = decode_whole(content, min_side=min_side)
            assert same(decoder.decode(content, min_side=min_side), expected), name
            resized = decoder.decode(content, min_side=min_side, square=square)
            assert resized.pixels.tobytes() == to_square(expected.pixels, square).tobytes(), name
    assert decoders_of(os.getpid()) == []


def test_refusals_are_those_of_this_process(decoder: FileDecoder, tmp_path: Path) -> None:
    content = dicom(make_film(1))
    (tmp_path / "cut").write_bytes(content[: len(content) // 2])
    for source, limits in (
        (tmp_path / "cut", None),
        (content, ImageLimits(max_pixels=100)),
        (tmp_path / "none", None),
        (tmp_path, None),
        (b"", None),
        (b"hello", None),
    ):
        with pytest.raises(ImageError) as expected:
            decode_whole(source, limits)
        with pytest.raises(ImageError) as found:
            decoder.decode(source, limits)
        assert (type(found.value), str(found.value)) == (type(expected.value), str(expected.value))


@pytest.mark.slow
def test_a_process_that_is_killed_costs_nothing(decoder: FileDecoder) -> None:
    content = slow_film()
    with ThreadPoolExecutor(1) as thread:
        decoded = thread.submit(lambda: [decoder.decode(content) for _ in range(3)])
        pid = kill_a_decoder_at_work(os.getpid())
        expected = decode_whole(content)
        assert all(same(image, expected) for image in decoded.result(PATIENCE))
    assert pid not in decoders_of(os.getpid())


@pytest.mark.parametrize("streams", ["", "<&- >&-", "<&- >&- 2>&-"])
def test_limits_and_closed_streams_of_the_caller_keep_no_process_from_work(
    tmp_path: Path, streams: str
) -> None:
    (tmp_path / "film").write_bytes(dicom(make_film(1)))
    (tmp_path / "script.py").write_text(_SCRIPT)
    command = f"ulimit -t 10000; ulimit -v 4000000; exec {sys.executable} -P script.py {streams}"
    path = os.pathsep.join(filter(None, sys.path))
    subprocess.run(
        ["/bin/bash", "-c", command],
        cwd=tmp_path,
        check=True,
        timeout=PATIENCE,
        env=os.environ | {"PYTHONPATH": path},
    )
    assert (tmp_path / "width").read_text() == "56"


@pytest.mark.slow
def test_a_large_film_leaves_no_memory_taken(decoder: FileDecoder) -> None:
    square = Square(16, "crop")
    decoder.decode(dicom(make_film(1)), square=square)
    (pid,) = decoders_of(os.getpid())
    before = status(pid, "VmRSS")
    decoder.decode(dicom(make_film(0, rows=5000, columns=4000)), square=square)
    wait_until(lambda: status(pid, "VmRSS") < before + 30 * MIB)


def test_a_copy_of_the_process_decodes_by_processes_of_its_own(decoder: FileDecoder) -> None:
    content = dicom(make_film(1))
    decoder.decode(content)
    child = os.fork()
    if not child:
        signal.alarm(int(PATIENCE))
        os._exit(decoder.decode(content).width)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 56
    assert decoder.decode(content).width == 56


@pytest.mark.usefixtures("stops_last")
def test_a_process_that_hangs_costs_one_file(decoder: FileDecoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_decoder, "_DEADLINE_S", 3.0)
    content = dicom(make_film(1))
    decoder.decode(content)
    (pid,) = decoders_of(os.getpid())
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(ImageError, match=r"^Decoding the image takes over .* save it anew"):
        decoder.decode(content)
    assert not is_there(pid)
    monkeypatch.undo()
    assert decoder.decode(content).width == 56


def test_where_no_process_starts_one_sentence_says_so(
    decoder: FileDecoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(DecoderStartError, match="No process that decodes images can be started: free"):
        decoder.decode(dicom(make_film(1)))


def test_none_is_left_once_it_is_closed() -> None:
    with FileDecoder(2) as decoder:
        decoder.decode(dicom(make_film(1)))
        wait_until(lambda: len(decoders_of(os.getpid())) == 2)
        pids = decoders_of(os.getpid())
    assert not any(is_there(pid) for pid in pids)
    with pytest.raises(DecodersClosedError):
        decoder.decode(dicom(make_film(1)))


def test_modules_of_the_current_folder_are_not_taken_for_ours(
    decoder: FileDecoder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("training", "json", "numpy"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(1)")
    monkeypatch.chdir(tmp_path)
    assert decoder.decode(dicom(make_film(1))).width == 56


def test_its_process_loads_no_torch() -> None:
    command = [sys.executable, "-c", f"import sys, {WORKER}; print(*sys.modules)"]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE).stdout
    assert not {name.split(".")[0] for name in loaded.split()} & {"torch", "pydantic", "pydicom", "faiss"}

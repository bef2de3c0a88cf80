"""Image files of many forms, and the processes of the system that decode them."""

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import numpy as np
from PIL import Image
from pydicom.uid import JPEG2000Lossless

from tests.dicom_films import encoded as dicom
from tests.dicom_films import make_film
from tests.training.data.hostile import encoded

WORKER: Final = "training.imaging.processes.worker"
MIB: Final = 2**20
PATIENCE: Final = 60.0
# Ticks of CPU time that an idle process does not use.
_AT_WORK: Final = 10


def small(colour: str = "red") -> bytes:
    return encoded(Image.new("RGB", (40, 30), colour), "PNG")


def wait_until(true: Callable[[], bool]) -> None:
    """Wait for something that other threads and processes do."""
    until = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < until
        time.sleep(0.01)


def cpu_ticks(pid: int) -> int:
    """Ticks of CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13]))


def is_at_work(pid: int, idle: int) -> bool:
    """Whether a process has a task, by its CPU time and that of before; the pool counts a task earlier."""
    return cpu_ticks(pid) >= idle + _AT_WORK


def status(pid: int, field: str) -> int:
    """Bytes that the system tells of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def is_there(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def noise(width: int = 90, height: int = 70) -> Image.Image:
    """Colours and opacities at random."""
    return Image.fromarray(np.random.default_rng(3).integers(0, 256, (height, width, 4), dtype=np.uint8))


def _files() -> dict[str, bytes]:
    rgba = noise()
    rgb, deep = rgba.convert("RGB"), np.random.default_rng(4).integers(5, 40_000, (70, 90))
    exif = Image.Exif()
    exif[0x0112] = 6
    files = {
        "jpeg": encoded(rgb, "JPEG"),
        "progressive": encoded(rgb, "JPEG", progressive=True),
        "turned": encoded(rgb, "JPEG", exif=exif),
        "palette": encoded(rgb.convert("P"), "PNG", transparency=3),
        "rgba": encoded(rgba, "PNG"),
        "deep png": encoded(Image.fromarray(deep.astype(np.uint16)), "PNG"),
        "webp": encoded(rgba, "WEBP"),
        "gif": encoded(rgb.convert("P"), "GIF"),
    }
    kinds = (np.uint16, np.int32, np.float32)
    return files | {kind.__name__: encoded(Image.fromarray(deep.astype(kind)), "TIFF") for kind in kinds}


FILES = _files()


def slow_film() -> bytes:
    """A DICOM file whose decoding takes some tenths of a second."""
    film = make_film(0, rows=1800, columns=1600)
    film.compress(JPEG2000Lossless, generate_instance_uid=False)
    return dicom(film)


def decoders_of(parent: int) -> list[int]:
    """The processes that decode files for a process, and are ready for them."""
    return [int(folder.name) for folder in Path("/proc").glob("[0-9]*") if _decodes_for(folder, parent)]


def kill_a_decoder_at_work(parent: int) -> int:
    """Wait until a process that decodes files for another one works on a file, and kill it."""
    idle: dict[int, int] = {}

    def at_work() -> list[int]:
        now = decoders_of(parent)
        at_work = []
        for pid in now:
            # Others may end in this moment.
            with suppress(FileNotFoundError, ProcessLookupError):
                idle.setdefault(pid, cpu_ticks(pid))
                if is_at_work(pid, idle[pid]):
                    at_work.append(pid)
        return at_work

    wait_until(lambda: bool(at_work()))
    pid = at_work()[0]
    os.kill(pid, signal.SIGKILL)
    return pid


def _decodes_for(folder: Path, parent: int) -> bool:
    try:
        stat = (folder / "stat").read_text().rpartition(")")[2].split()
        if int(stat[1]) != parent or WORKER.encode() not in (folder / "cmdline").read_bytes():
            return False
        # Its limit of memory is set once all modules are loaded.
        limits = (folder / "limits").read_text()
    except OSError:
        return False
    (space,) = (line for line in limits.splitlines() if line.startswith("Max address space"))
    return "unlimited" not in space

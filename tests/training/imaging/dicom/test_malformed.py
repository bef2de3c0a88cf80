"""Malformed DICOM files are refused with a reason, or decoded and imported, in little time and memory."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydicom.uid import UID

from tests.training.imaging.dicom.malformed import SYNTAXES, malformed_files, whole
from training.common.errors import ImageError
from training.imaging.images import ImageLimits, decode_whole

_ROOT: Final = Path(__file__).parents[4]
_MEMORY_BYTES: Final = 500_000_000
# Harmless damage is decoded; films of 50 megapixels take 650 MB, in JPEG 2000 also by a few bytes.
_DECODED_BYTES: Final = 700_000_000
_SECONDS: Final = 2.0


def _decode_all(
    folder: Path, count: int, seed: int, way: Literal["decode", "import"]
) -> dict[str, dict[str, Any]]:
    """Decode or import files in a process that is limited, and return what came of each."""
    for name, content in malformed_files(count, seed):
        (folder / name).write_bytes(content)
    module = "tests.training.imaging.dicom.decode_each"
    # Arenas of threads take address space that nothing uses.
    environment = {
        **os.environ,
        "PYTHONPATH": str(_ROOT),
        "MALLOC_ARENA_MAX": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, "-m", module, folder, way],
        cwd=_ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, f"ended at {lines[-1]}: {done.stderr[-2000:]}"
    return {before["name"]: after for before, after in zip(lines[::2], lines[1::2], strict=True)}


def _judge(found: dict[str, dict[str, Any]], count: int) -> int:
    """Return how many were refused, each with a sentence."""
    assert len(found) == count
    for name, line in found.items():
        outcome = line["outcome"]
        assert line["seconds"] < _SECONDS, name
        is_decoded = outcome.startswith("decoded ")
        assert line["bytes"] < (_DECODED_BYTES if is_decoded else _MEMORY_BYTES), name
        assert is_decoded or (outcome.endswith(".") and len(outcome) < 300), f"{name}: {outcome}"
        assert "Traceback" not in outcome
        assert "object" not in outcome, f"{name}: {outcome}"
    refused = [line for line in found.values() if not line["outcome"].startswith("decoded ")]
    # Some damage is in what decides no pixel.
    assert len(refused) > count / 2
    return len(refused)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["decode", "import"])
def test_hundreds_of_malformed_files_are_refused_or_taken_in_little_time_and_memory(
    tmp_path: Path, way: Literal["decode", "import"]
) -> None:
    found = _decode_all(tmp_path, 640, seed=2, way=way)
    assert _judge(found, 640) >= 300
    if way == "import":
        # Their class and modality are those of films.
        assert any(line["outcome"] == "decoded 1 films" for line in found.values())
    else:
        limit = f"{ImageLimits().max_dicom_bytes / 1e6:,.1f} MB"
        bombs = {line["outcome"] for name, line in found.items() if name.endswith("_bomb")}
        assert f"The DICOM file inflates to over {limit}, the limit of an image file." in bombs


@pytest.mark.slow
@given(
    syntax=st.sampled_from(SYNTAXES),
    edits=st.lists(st.tuples(st.integers(132, 10_000), st.binary(min_size=1, max_size=4)), max_size=12),
    end=st.integers(132, 20_000),
)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_damage_is_an_image_error_or_none(syntax: UID, edits: list[tuple[int, bytes]], end: int) -> None:
    content = bytearray(whole(syntax))
    for place, patch in edits:
        place %= len(content)
        content[place : place + len(patch)] = patch
    try:
        decoded = decode_whole(bytes(content[:end]))
    except ImageError as error:
        assert str(error).endswith(".")
    else:
        assert decoded.pixels.size == (decoded.width, decoded.height)

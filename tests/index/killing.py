"""Programs that embed in a process of their own and are killed between two batches."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from index.vectors.protocol import Vectors
from training.models.encoder import Encoder
from training.models.image_input import Pixels


def tell_batches(encoder: Encoder) -> Encoder:
    """Have an encoder say when it has embedded a batch of images, and continue when it is signalled."""
    embed = encoder.embed_images

    def embed_and_tell(images: Pixels) -> Vectors:
        vectors = embed(images)
        sys.stdout.write("batch\n")
        sys.stdout.flush()
        sys.stdin.readline()
        return vectors

    encoder.embed_images = embed_and_tell  # type: ignore[method-assign]
    return encoder


def kill_after(batches: int, program: str, *arguments: Path) -> None:
    """Kill a program whose encoder tells its batches, right after the last of so many."""
    with subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for _ in range(batches):
            assert process.stdout.readline() == "batch\n"
            process.stdin.write("\n")
            process.stdin.flush()
        process.send_signal(signal.SIGKILL)
        assert process.wait(30) == -signal.SIGKILL

import wave
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.training.trainer.scenes import write_scenes
from training.common.manifest import read_manifest, write_manifest


@pytest.fixture(autouse=True)
def always_one_thread(one_thread: None) -> None:
    """All of these tests are of small numbers."""


@pytest.fixture(scope="session")
def items(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images with sentences, a study and a sound each; tests do not change them."""
    folder = write_scenes(tmp_path_factory.mktemp("recipes") / "items", train=12, val=4)
    generator = np.random.default_rng(3)
    records = []
    for number, record in enumerate(read_manifest(folder).records):
        samples = (generator.uniform(-0.3, 0.3, size=3000) * 32767).astype("<i2")
        with wave.open(str(folder / f"{number}.wav"), "wb") as sound:
            sound.setnchannels(1)
            sound.setsampwidth(2)
            sound.setframerate(16_000)
            sound.writeframes(samples.tobytes())
        records.append(replace(record, metadata={"study": f"study {number}"}, audio=f"{number}.wav"))
    write_manifest(folder, records)
    return folder

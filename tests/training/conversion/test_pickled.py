"""Folders with pickled weights alone, and the page's commands that write safetensors."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.training.conversion import folders
from tests.training.conversion.small_hub import NAME, SmallHub, served
from training.common.errors import RecipeError
from training.conversion.convert import convert

PAGE = Path(__file__).parents[3] / "docs" / "research" / "pretrained.md"


def _pickle(folder: Path) -> None:
    """Keep the weights of a folder as PyTorch pickles them."""
    weights = folder / "model.safetensors"
    torch.save(load_file(weights), folder / "pytorch_model.bin")
    weights.unlink()


def _commands() -> str:
    """The code block of the page that downloads a model and writes its weights as safetensors."""
    section = PAGE.read_text("utf-8").split("## Pickled weights")[1].split("\n## ")[0]
    actual = re.search(r"(?m)(?:^ {4}.*\n)+", section)
    assert actual is not None
    return actual[0]


@pytest.mark.slow
def test_the_page_s_commands_make_a_folder_that_becomes_a_bundle(tmp_path: Path) -> None:
    folders.clip(tmp_path / "clip")
    _pickle(tmp_path / "clip")
    files = {file.name: file.read_bytes() for file in (tmp_path / "clip").iterdir()}
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("HF_")},
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HF_HOME": str(tmp_path / "hf"),
    }
    with served(SmallHub({"main": {**files, "tf_model.h5": b"", "flax_model.msgpack": b""}})) as hub:
        commands = _commands().replace("NAME", NAME)
        done = subprocess.run(
            ["sh", "-ec", commands],
            cwd=tmp_path,
            env={**environment, "HF_ENDPOINT": hub.url},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert not [asked for asked in hub.asked if asked.endswith((".h5", ".msgpack"))]
    made = convert(str(tmp_path / "FOLDER"), tmp_path / "bundle", name="mine")
    assert made.parity.texts is not None


def test_a_folder_with_pickled_weights_alone_is_given_the_page_s_command(tmp_path: Path) -> None:
    folder = tmp_path / "my clip"
    folders.clip(folder)
    _pickle(folder)
    command = re.sub(r"\\\n *", "", _commands().splitlines(keepends=True)[1] + _commands().splitlines()[2])
    with pytest.raises(RecipeError) as refused:
        convert(str(folder), tmp_path / "bundle", name="mine")
    assert str(refused.value) == (
        f"No safetensors file in {folder}, and pickled weights are never loaded: write them as safetensors "
        f"by `{command.strip().removesuffix('FOLDER')}'{folder}'`."
    )


@pytest.mark.parametrize(
    ("file", "advice"),
    [
        ("open_clip_pytorch_model.bin", "`Pickled weights` in docs/guides/encoders.md"),
        (None, "put the model's"),
    ],
)
def test_other_folders_without_safetensors_are_given_advice(
    file: str | None, advice: str, tmp_path: Path
) -> None:
    folders.clip(tmp_path / "clip")
    (tmp_path / "clip" / "model.safetensors").unlink()
    if file is not None:
        (tmp_path / "clip" / file).touch()
    with pytest.raises(RecipeError, match=re.escape(advice)):
        convert(str(tmp_path / "clip"), tmp_path / "bundle", name="mine")

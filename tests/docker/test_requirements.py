import runpy
import tomllib
from pathlib import Path

import pytest

from tests.docker.dockerfile import ROOT

requirements = runpy.run_path(str(ROOT / "docker" / "requirements.py"))["requirements"]


@pytest.mark.parametrize(
    ("extra", "faiss", "other"), [("cpu", "faiss-cpu", "faiss-gpu"), ("gpu", "faiss-gpu", "faiss-cpu")]
)
def test_a_device_brings_exactly_its_faiss(extra: str, faiss: str, other: str) -> None:
    found = requirements(ROOT / "pyproject.toml", extra)
    assert any(each.startswith(faiss) for each in found)
    assert not any(each.startswith(other) for each in found)


def test_dependencies_are_all_there_and_development_tools_are_not() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    found = requirements(ROOT / "pyproject.toml", "all", "cpu")
    assert set(project["dependencies"]) < set(found)
    assert not set(project["optional-dependencies"]["dev"]) & set(found)


def test_an_unknown_extra_is_named_with_the_known_ones(tmp_path: Path) -> None:
    pyproject = tmp_path / "pyproject.toml"
    pyproject.write_text(
        '[project]\nname = "p"\ndependencies = ["a"]\n[project.optional-dependencies]\n'
        'cpu = ["b"]\nall = ["p[cpu]", "c"]\n'
    )
    assert requirements(pyproject, "cpu") == ["a", "b"]
    assert requirements(pyproject, "all") == ["a", "b", "c"]
    with pytest.raises(SystemExit, match="no extra 'tpu'; choose of: all, cpu"):
        requirements(pyproject, "tpu")

"""The wheel without extras: a loss of this project in a training loop of somebody else."""

import subprocess
import sys
from pathlib import Path

import pytest

LOOP = """
import sys
import torch
from training.objectives import InfoNCE, ReCo, WeightedSum

image, text = torch.nn.Linear(5, 4), torch.nn.Linear(5, 4)
loss = WeightedSum([InfoNCE(temperature=0.1), ReCo(negative_weight=0.6)], [1, 1 / 64])
optimizer = torch.optim.Adam([*image.parameters(), *text.parameters(), *loss.parameters()], lr=1e-2)
torch.manual_seed(0)
pairs = torch.randn(32, 5)
values = []
for _ in range(30):
    optimizer.zero_grad()
    value = loss(image(pairs), text(pairs))
    value.backward()
    optimizer.step()
    values.append(value.item())
assert values[-1] < 0.8 * values[0], values
print(*sorted({name.partition(".")[0] for name in sys.modules} - set(sys.stdlib_module_names)))
"""
# What torch and pydantic bring themselves.
_NEEDED = {"torch", "numpy", "pydantic", "pydantic_core", "annotated_types", "typing_extensions"}
_NEEDED |= {
    "torchgen",
    "functorch",
    "typing_inspection",
    "sympy",
    "mpmath",
    "networkx",
    "filelock",
    "fsspec",
    "jinja2",
    "markupsafe",
}


def run(code: str, wheel: Path, needed: Path) -> subprocess.CompletedProcess[str]:
    """Run code where nothing can be imported but the wheel and what a folder has."""
    command = [
        sys.executable,
        "-I",
        "-S",
        "-c",
        f"import sys; sys.path += {[str(wheel), str(needed)]!r}\n{code}",
    ]
    return subprocess.run(command, capture_output=True, text=True, cwd=wheel, check=False)


@pytest.fixture(scope="module")
def needed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with links to the packages of this environment that torch and pydantic need."""
    folder = tmp_path_factory.mktemp("needed")
    here = next(Path(path) for path in sys.path if (Path(path) / "torch").is_dir())
    for entry in here.iterdir():
        if entry.name.partition(".")[0] in _NEEDED or entry.name == "numpy.libs":
            (folder / entry.name).symlink_to(entry)
    return folder


@pytest.mark.slow
def test_a_loss_needs_torch_and_pydantic_alone(wheel: Path, needed: Path) -> None:
    done = run(LOOP, wheel, needed)
    assert done.returncode == 0, done.stderr
    # Names with an underscore are those of Python's and Cython's own making.
    used = {name for name in done.stdout.split() if "_" not in name or name in _NEEDED}
    assert used <= _NEEDED | {"training"}


@pytest.mark.slow
def test_the_command_says_what_to_install(wheel: Path, needed: Path) -> None:
    done = run("from app.command import run; run()", wheel, needed)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == 'typer is not installed: run `pip install "recoquest[all]"`.\n'


@pytest.mark.slow
def test_every_objective_loads_without_extras(wheel: Path, needed: Path) -> None:
    code = (
        "from training.objectives.base import objective_names, objective_settings\n"
        "print(*[objective_settings(name).implementation.__name__ for name in objective_names()])"
    )
    done = run(code, wheel, needed)
    assert done.returncode == 0, done.stderr
    assert {"ReCo", "QUEST", "Reclaim", "CaptionLSTM"} <= set(done.stdout.split())

"""The wheel without extras: a loss of this project in a training loop of somebody else."""

import os
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


def run(code: str, wheel: Path) -> subprocess.CompletedProcess[str]:
    """Run code without a site folder: it sees the wheel, and of this environment what is needed alone."""
    here = next(Path(path) for path in sys.path if (Path(path) / "torch").is_dir())
    allowed = f"""
import importlib.abc, sys
class Only(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        mine = {sorted(_NEEDED | {"app", "training"})!r}
        known = top.startswith("_sysconfigdata") or top in sys.stdlib_module_names or top in mine
        if path is None and not known:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Only())
sys.path[:0] = [{str(wheel)!r}]
sys.path.append({str(here)!r})
"""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = [sys.executable, "-I", "-S", "-c", allowed + code]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=wheel, check=False)


@pytest.mark.slow
def test_a_loss_needs_torch_and_pydantic_alone(wheel: Path) -> None:
    done = run(LOOP, wheel)
    assert done.returncode == 0, done.stderr
    assert {*done.stdout.split()} <= _NEEDED | {"training", "__main__"}


@pytest.mark.slow
def test_the_command_says_what_to_install(wheel: Path) -> None:
    done = run("from app.command import run; run()", wheel)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == 'typer is not installed: run `pip install "recoquest[all]"`.\n'

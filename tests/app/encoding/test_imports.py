"""An encoder's process, and the service, start in seconds: most of a start is imports."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["app.encoding.processes.worker", "app.application"])
def test_transformers_is_imported_when_one_of_its_models_is_built(module: str) -> None:
    script = f"import sys, {module}; print(*sys.modules)"
    imported = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True
    ).stdout.split()
    assert "torch" in imported
    assert not {"transformers", "torch._dynamo"} & set(imported)

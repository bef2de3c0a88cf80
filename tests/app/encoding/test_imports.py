"""An encoder's process, and the service, start in seconds: most of a start is imports."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["app.encoding.fork_template", "app.application"])
def test_what_a_start_needs_is_imported_and_no_more(module: str) -> None:
    script = f"import sys, {module}; print(*sys.modules)"
    imported = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True
    ).stdout.split()
    assert "onnxruntime" in imported
    assert not {"torch", "transformers", "onnx", "alembic"} & set(imported)


def test_an_encoder_of_torch_imports_transformers_when_one_of_its_models_is_built() -> None:
    script = "import sys, training.models.encoder; print(*sys.modules)"
    imported = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True
    ).stdout.split()
    assert "torch" in imported
    assert not {"transformers", "torch._dynamo"} & set(imported)

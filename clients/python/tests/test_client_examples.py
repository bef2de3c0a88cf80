"""The programs of docs/integration.md run."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.access import ADMIN_KEY
from tests.app.conftest import COLLECTION, Indexed

ROOT = Path(__file__).resolve().parents[3]


def test_the_examples_of_the_docs_run(service: str, indexed: Indexed) -> None:
    programs = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "integration.md").read_text(), re.DOTALL)
    image = indexed.manifest.image_path(indexed.manifest.records[0])
    environment = {
        **os.environ, "RECOQUEST_KEY": ADMIN_KEY, "PYTHONPATH": str(ROOT / "clients" / "python")
    }  # fmt: skip
    printed = []
    for program in programs:
        done = subprocess.run(
            [sys.executable, "-c", program, service, COLLECTION, str(image)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout.splitlines())
    first, second = printed
    assert "1 []" in first
    assert first[-1].startswith("urn:recoquest:unknown-image ")
    assert second == ["['a', 'a']", "a ('a dog',)"]

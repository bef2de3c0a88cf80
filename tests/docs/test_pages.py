"""The documentation as its readers use it: what a page shows runs in its order, from a clean home."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.benchmarks.service import free_port

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    *sorted(path for path in DOCS.rglob("*.md") if path.relative_to(DOCS).parts[0] != "research"),
]
# Words of all pages but research, outside of blocks; the README has a limit of its own.
MOST_WORDS, MOST_README_WORDS = 15_000, 700
FENCE = re.compile(
    r"(?:^[ ]*<!-- not run: (?P<reason>[^>]+) -->\n+)?"
    r"^(?P<indent>[ ]*)```(?P<language>\w+)(?P<options>[^\n]*)\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
SHOWN = ("text", "json", "yaml", "toml", "csv", "html", "ts", "ini", "nginx")
READY = "for _ in $(seq 300); do curl -sf localhost:$PORT/readyz >/dev/null && break; sleep .2; done"


class Block(NamedTuple):
    """A fenced block: its language, the file that it is, if any, and why it isn't run."""

    language: str
    file: str | None
    reason: str | None
    text: str


def blocks_of(page: str) -> Iterator[Block]:
    for fence in FENCE.finditer(page):
        named = re.search(r'title="([^"]+)"', fence["options"])
        lines = fence["text"].splitlines(keepends=True)
        text = "".join(line.removeprefix(fence["indent"]) for line in lines)
        yield Block(fence["language"], named and named[1], fence["reason"], text)


def script_of(page: str) -> str:
    """Return the page as one Bash script; servers run in the background until its end."""
    parts = ["set -euo pipefail", "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT"]
    for block in blocks_of(page):
        if block.reason is not None:
            continue
        if block.file is not None:
            parts.append(f"mkdir -p $(dirname {block.file})")
            parts.append(f"cat > {block.file} <<'END_OF_FILE'\n{block.text}END_OF_FILE")
        elif block.language == "python":
            parts.append(f"python - <<'END_OF_FILE'\n{block.text}END_OF_FILE")
        elif block.language == "sh":
            command = block.text.strip()
            serves = re.match(r"recoquest (serve|worker)\b", command) is not None
            ready = [READY] if command.startswith("recoquest serve") else []
            parts += [f"{command} > server.log 2>&1 &", *ready] if serves else [command]
    return "\n".join(parts) + "\n"


def runs(page: Path) -> bool:
    # The wheel runs this page in tests/outside.
    return page.name != "own-code.md" and any(
        block.reason is None and (block.file or block.language in ("sh", "python"))
        for block in blocks_of(page.read_text(encoding="utf-8"))
    )


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", [page for page in PAGES if runs(page)], ids=lambda page: page.name)
def test_the_commands_and_programs_of_a_page_run_in_order(page: Path, tmp_path: Path) -> None:
    port = str(free_port())
    script = script_of(page.read_text(encoding="utf-8")).replace(":8000", f":{port}")
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("RECOQUEST_", "PYTEST_"))
    } | {
        "HOME": str(tmp_path),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "RECOQUEST_PORT": port,
        "PORT": port,
        "PYTHONPATH": str(ROOT / "clients" / "python"),
        "OMP_NUM_THREADS": "1",
    }
    folder = tmp_path / "work"
    folder.mkdir()
    with subprocess.Popen(
        ["bash", "-x"],
        cwd=folder,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as shell:
        try:
            printed, _ = shell.communicate(script, timeout=840)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
    assert shell.returncode == 0, printed[-4000:]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_is_run_or_shown_or_says_why_it_is_not_run(page: Path) -> None:
    for block in blocks_of(page.read_text(encoding="utf-8")):
        assert block.file or block.language in ("sh", "python", *SHOWN), block


def test_the_pages_are_short() -> None:
    texts = {page: page.read_text(encoding="utf-8") for page in PAGES}
    assert len(texts.pop(ROOT / "README.md").split()) <= MOST_README_WORDS
    assert sum(len(FENCE.sub("", text).split()) for text in texts.values()) <= MOST_WORDS


@pytest.mark.slow
def test_the_site_builds_and_all_its_links_lead_somewhere() -> None:
    built = subprocess.run(
        [sys.executable, "docs/build.py"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stdout + built.stderr


def test_no_word_is_misspelt() -> None:
    codespell = Path(sys.executable).with_name("codespell")
    checked = subprocess.run(
        [str(codespell), *map(str, PAGES)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert not checked.stdout, checked.stdout

"""A home that is filled by commands and by the service, and all that was said meanwhile."""

import os
import re
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.dicom_films import MARKER
from tests.dicom_markers import inflated
from tests.training.clinical.reports.documents import ACCESSION, MARKERS, PATIENT

_ROOT: Final = Path(__file__).parents[3]
# The date of the films, and the numbers of the documents, identify as names do.
_WORDS: Final = (MARKER, ACCESSION, PATIENT, "20240115", "2024-01-15")
_WANTED: Final = re.compile(
    b"|".join(
        re.escape(form)
        for word in (*_WORDS, *MARKERS)
        for form in (word.encode(), word.encode("utf-16-le"), word.encode("utf-16-be"))
    ),
    re.IGNORECASE,
)


@dataclass
class Walk:
    """A home and what was said.

    Attributes:
        base: Folder of all that is written; nothing else of it.
        said: Outputs of commands, answers and logs, by where they come from.
    """

    base: Path
    said: dict[str, bytes] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        """The home folder."""
        return self.base / "home"

    def keep(self, place: str, content: bytes) -> None:
        """Keep what was said."""
        self.said[f"{len(self.said)} {place}"] = content

    def environment(self, **settings: str) -> dict[str, str]:
        """Return the environment of a command."""
        own = {"RECOQUEST_HOME": str(self.home), "TMPDIR": str(self.base), "OMP_NUM_THREADS": "1"}
        return {**os.environ, **own, **settings}

    def words(self, *arguments: object) -> list[str]:
        """Return a command as a process takes it."""
        return [sys.executable, "-c", "from app.cli.main import run; run()", *map(str, arguments)]

    def run(self, *arguments: object, code: int = 0, **settings: str) -> str:
        """Run a command as it is typed, and keep what it says."""
        done = subprocess.run(
            self.words(*arguments),
            capture_output=True,
            env=self.environment(**settings),
            cwd=_ROOT,
            check=False,
        )
        said = done.stdout + done.stderr
        assert done.returncode == code, said.decode()
        self.keep(f"recoquest {arguments[0]}", said)
        return said.decode()

    @contextmanager
    def beside(self, announced: str, *arguments: object, **settings: str) -> Iterator[str]:
        """Run a command until the block ends, and give the line by which it says that it listens."""
        log = self.base / f"{arguments[0]}.log"
        with log.open("wb") as written:
            process = subprocess.Popen(
                self.words(*arguments),
                stdout=written,
                stderr=written,
                env=self.environment(**settings),
                cwd=_ROOT,
            )
        try:
            deadline = time.monotonic() + 120
            while not (said := log.read_text()).startswith(announced) or "\n" not in said:
                assert process.poll() is None and time.monotonic() < deadline, said
                time.sleep(0.1)
            yield said.partition("\n")[0]
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)

    def traces(self) -> list[str]:
        """Name what has a marker: files by path, and what was said with the words around."""
        for backup in self.base.glob("*.tar"):
            with tarfile.open(backup) as archive:
                archive.extractall(self.base / f"{backup.stem} unpacked", filter="data")
        found = [
            f"{place}: {around}" for place, content in self.said.items() for around in markers_in(content)
        ]
        for path in sorted(self.base.rglob("*")):
            named = _WANTED.search(os.fsencode(path.relative_to(self.base)))
            content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
            if named or (path.is_symlink() and _WANTED.search(os.fsencode(path.readlink()))):
                found.append(f"name of {path}")
            found += [f"{path}: {around}" for around in markers_in(content)]
        return found


def markers_in(content: bytes) -> list[str]:
    """Return a marker with the bytes around for each part, plain or compressed, that has one."""
    return [
        repr(part[max(0, hit.start() - 60) : hit.end() + 40])
        for part in (content, *inflated(content))
        if (hit := _WANTED.search(part)) is not None
    ]

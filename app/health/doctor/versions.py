"""The examination of versions: of what is installed beside recoquest, and of the servers that it uses."""

import platform
import re
import shlex
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from typing import Final

from packaging.requirements import Requirement

from app.health.doctor.finding import Finding

_SHOWN: Final = ("recoquest", "torch", "transformers", "onnxruntime", "sqlalchemy", "fastapi")
# Either brings the module; which is installed depends on the machine.
_FAISS: Final = ("faiss-cpu", "faiss-gpu")
# The first one with `pg_current_snapshot`.
_OLDEST_POSTGRESQL: Final = 13


def examine_versions() -> Finding:
    """Look whether what recoquest says that it needs is installed, in the versions that it says."""
    if not any(map(_installed, _FAISS)):
        advice = 'run `pip install -c constraints.txt ".[cpu]"` in the checkout'
        return Finding("versions", "wrong", f"faiss is not installed: {advice}.")
    unmet = [needed for needed in _requirements() if not _is_met(needed)]
    if unmet:
        described = ", ".join(map(_described, unmet))
        wanted = " ".join(shlex.quote(f"{needed.name}{needed.specifier}") for needed in unmet)
        gone = any(_installed(needed.name) is None for needed in unmet)
        return Finding(
            "versions", "wrong" if gone else "doubtful", f"{described}: run `pip install {wanted}`."
        )
    shown = [f"{name} {found}" for name in (*_SHOWN, *_FAISS) if (found := _installed(name))]
    return Finding("versions", "ok", f"Python {platform.python_version()}, {', '.join(shown)}")


def judge_postgresql(where: str, said: str) -> Finding:
    """Say whether a PostgreSQL is new enough, by what it says of its version, such as `15.14 (Debian)`."""
    if _major(said) < _OLDEST_POSTGRESQL:
        advice = f"use PostgreSQL {_OLDEST_POSTGRESQL} or newer"
        return Finding("catalogue", "wrong", f"{where} is PostgreSQL {said}, too old: {advice}.")
    return Finding("catalogue", "ok", f"{where}, PostgreSQL {said}")


def _requirements() -> Iterator[Requirement]:
    """Requirements of recoquest, and of the extras that are fully installed."""
    try:
        every = [Requirement(line) for line in requires("recoquest") or ()]
        extras = metadata("recoquest").get_all("Provides-Extra", [])
    except PackageNotFoundError:
        # A checkout that was never installed has no metadata.
        return
    yield from _of(every, "")
    for extra in extras:
        needed = _of(every, extra)
        if all(_installed(one.name) for one in needed):
            yield from needed


def _of(every: Sequence[Requirement], extra: str) -> list[Requirement]:
    """Requirements of an extra alone; without one, the unconditional ones."""
    return [
        one
        for one in every
        if (one.marker is None or one.marker.evaluate({"extra": extra}))
        and (not extra or (one.marker is not None and not one.marker.evaluate({"extra": ""})))
    ]


def _is_met(needed: Requirement) -> bool:
    found = _installed(needed.name)
    return found is not None and needed.specifier.contains(found, prereleases=True)


def _described(needed: Requirement) -> str:
    found = _installed(needed.name)
    return f"{needed.name} {found or 'is not installed'} ({needed.specifier} is needed)"


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _major(said: str) -> int:
    found = re.match(r"\d+", said)
    return int(found[0]) if found else 0

"""The doctor compares what is installed, and the servers, with what recoquest says that it needs."""

import re
from importlib.metadata import version
from pathlib import Path

import pytest

from app.health.doctor import Finding, examine_indexed, examine_versions, judge_postgresql
from app.settings import Settings


def _examined(folder: Path, monkeypatch: pytest.MonkeyPatch, *requirements: str) -> Finding:
    """What is found where recoquest says that it needs this, found before what it says in truth."""
    described = folder / "recoquest-9.9.dist-info" / "METADATA"
    described.parent.mkdir()
    extras = ("one", "other")
    lines = [
        "Metadata-Version: 2.1",
        "Name: recoquest",
        "Version: 9.9",
        *(f"Provides-Extra: {each}" for each in extras),
        *(f"Requires-Dist: {each}" for each in requirements),
    ]
    described.write_text("\n".join(lines) + "\n")
    monkeypatch.syspath_prepend(folder)
    return examine_versions()


def test_what_is_in_its_range_is_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = _examined(
        tmp_path,
        monkeypatch,
        f"torch=={version('torch').partition('+')[0]}",
        "kornia>=0.1",
        "pytest<1; python_version < '3'",
        # Of an extra that is not installed nothing is asked.
        "pytest<1; extra == 'other'",
        "no-such-package; extra == 'other'",
    )
    assert found.state == "ok"
    assert f"recoquest 9.9, torch {version('torch')}" in found.found
    assert "faiss-" in found.found


def test_what_is_outside_its_range_is_named_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = _examined(
        tmp_path, monkeypatch, "kornia<0.2,>=0.1", "numpy>=1", 'SQLAlchemy[asyncio]<1; extra == "one"'
    )
    assert found == Finding(
        "versions",
        "doubtful",
        f"kornia {version('kornia')} (<0.2,>=0.1 is needed), SQLAlchemy {version('sqlalchemy')} "
        "(<1 is needed): run `pip install 'kornia<0.2,>=0.1' 'SQLAlchemy<1'`.",
    )


def test_what_is_missing_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = _examined(tmp_path, monkeypatch, "no-such-package>=2")
    assert found == Finding(
        "versions",
        "wrong",
        "no-such-package is not installed (>=2 is needed): run `pip install 'no-such-package>=2'`.",
    )


@pytest.mark.parametrize(
    ("said", "state"), [("12.22", "wrong"), ("13.0", "ok"), ("15.14 (Debian 15.14-0+deb12u1)", "ok")]
)
def test_a_database_server_that_is_too_old_is_told_of(said: str, state: str) -> None:
    found = judge_postgresql("postgresql://db/x", said)
    assert (found.subject, found.state, f"PostgreSQL {said}" in found.found) == ("catalogue", state, True)
    assert ("use PostgreSQL 13 or newer" in found.found) == (state == "wrong")


@pytest.mark.slow
def test_the_version_of_a_real_database_server_is_read(postgresql_url: str, tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "home", database_url=postgresql_url)
    (found,) = [one for one in examine_indexed(settings) if one.subject == "catalogue"]
    assert (found.state, bool(re.search(r", PostgreSQL \d+\.\d+", found.found))) == ("ok", True)

"""The stages of the demo: done once, found again, done anew when what they have made is gone."""

from collections.abc import Callable
from pathlib import Path

import pytest

from app.cli import demo
from app.cli.demo import DemoError, prepare, stage


class Work:
    """Makes a file and counts how often; fails as often as asked."""

    def __init__(self, made: Path, failures: int = 0) -> None:
        self.made = made
        self.failures = failures
        self.done = 0

    def __call__(self) -> str:
        if self.failures:
            self.failures -= 1
            raise KeyboardInterrupt
        self.done += 1
        self.made.touch()
        return "all of it"


def test_a_finished_stage_is_found_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    work = Work(tmp_path / "made")
    stage("Drawing", work.made, work)
    stage("Drawing", work.made, work)
    assert work.done == 1
    printed = capsys.readouterr().out.splitlines()
    assert printed == ["Drawing ...", "Drawing: done in 0 s; all of it", "Drawing: done before"]


def test_a_stage_whose_result_is_gone_is_done_again(tmp_path: Path) -> None:
    work = Work(tmp_path / "made")
    stage("Drawing", work.made, work)
    work.made.unlink()
    stage("Drawing", work.made, work)
    assert work.done == 2


def test_a_stopped_stage_is_not_finished(tmp_path: Path) -> None:
    work, other = Work(tmp_path / "run", failures=1), Work(tmp_path / "data")
    stage("Drawing", other.made, other)
    with pytest.raises(KeyboardInterrupt):
        stage("Training", work.made, work)
    for name, which in (("Drawing", other), ("Training", work)):
        stage(name, which.made, which)
    assert (other.done, work.done) == (1, 1)


def test_two_demos_in_one_folder_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def second_demo(name: str, made: Path, work: Callable[[], str | None]) -> None:
        prepare(tmp_path, 100)

    monkeypatch.setattr(demo, "stage", second_demo)
    with pytest.raises(DemoError, match="Another demo is at work"):
        prepare(tmp_path, 100)

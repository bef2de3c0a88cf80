"""The stages of the demo: done once, found again, done anew when what they are made from changes."""

from pathlib import Path

import pytest

from app.cli.demo import DemoError, Stages, prepare


class Work:
    """Counts how often it is done; fails as often as asked."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.done = 0

    def __call__(self) -> str:
        if self.failures:
            self.failures -= 1
            raise KeyboardInterrupt
        self.done += 1
        return "all of it"


def test_a_finished_stage_is_found_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    work = Work()
    Stages(tmp_path).run("Drawing", "seed 0", work)
    Stages(tmp_path).run("Drawing", "seed 0", work)
    assert work.done == 1
    printed = capsys.readouterr().out.splitlines()
    assert printed == ["Drawing ...", "Drawing: done in 0 s; all of it", "Drawing: done before"]


def test_another_origin_does_it_again(tmp_path: Path) -> None:
    work = Work()
    stages = Stages(tmp_path)
    for made_from in ("seed 0", "seed 1", "seed 1"):
        stages.run("Drawing", made_from, work)
    assert work.done == 2


def test_a_stopped_stage_is_not_finished(tmp_path: Path) -> None:
    work, other = Work(failures=1), Work()
    stages = Stages(tmp_path)
    stages.run("Drawing", "seed 0", other)
    with pytest.raises(KeyboardInterrupt):
        stages.run("Training", "recipe", work)
    for name, which in (("Drawing", other), ("Training", work)):
        stages.run(name, "seed 0" if which is other else "recipe", which)
    assert (other.done, work.done) == (1, 1)


@pytest.mark.parametrize("damaged", ["", "{", "[]"])
def test_a_damaged_note_means_nothing_is_finished(tmp_path: Path, damaged: str) -> None:
    (tmp_path / "stages.json").write_text(damaged)
    work = Work()
    Stages(tmp_path).run("Drawing", "seed 0", work)
    Stages(tmp_path).run("Drawing", "seed 0", work)
    assert work.done == 1


def test_two_demos_in_one_folder_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def second_demo(self: Stages, name: str, made_from: str, work: object) -> None:
        prepare(tmp_path, 100)

    monkeypatch.setattr(Stages, "run", second_demo)
    with pytest.raises(DemoError, match="Another demo is at work"):
        prepare(tmp_path, 100)

"""The folder of a run: whether it can be written, and has room for the checkpoints."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.training.runs import before_step
from tests.training.trainer.scenes import run, tiny_recipe
from training.trainer.loop import TrainingLoop
from training.trainer.run_state.errors import TrainingError
from training.trainer.run_state.folder import RunFolder


def test_a_folder_that_cannot_be_written(scenes: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(TrainingError, match=r"Nothing can be written to .*file: Not a directory"):
        run(tiny_recipe(), scenes, tmp_path / "file/out")
    assert not list(tmp_path.glob("tmp*"))


def test_a_disk_without_room_for_the_checkpoints(
    scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tiny_recipe(epochs=1), scenes, tmp_path / "whole")
    size = (tmp_path / "whole/checkpoints/last.pt").stat().st_size
    sizes: list[int] = []
    original = RunFolder.check_room

    def noted(folder: RunFolder, checkpoint_bytes: int, **kind: bool) -> None:
        sizes.append(checkpoint_bytes)
        original(folder, checkpoint_bytes, **kind)

    monkeypatch.setattr(RunFolder, "check_room", noted)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=3 * sizes[-1] - 1))
    with (
        before_step(TrainingLoop, 1, lambda: pytest.fail("a step was made")),
        pytest.raises(TrainingError, match=r"checkpoints of the run need .* make room, or give another"),
    ):
        run(tiny_recipe(), scenes, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert sizes[0] < size < 2 * sizes[0]
    run(tiny_recipe(epochs=1), scenes, tmp_path / "whole", resume=True)


@pytest.mark.parametrize(
    ("validated", "resumed", "files"),
    [(True, False, 3), (False, False, 2), (True, True, 2), (False, True, 2)],
)
def test_the_room_that_checkpoints_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, validated: bool, resumed: bool, files: int
) -> None:
    folder = RunFolder(tmp_path)
    if resumed:
        folder.checkpoints.mkdir()
        for path in (folder.last, folder.best):
            path.touch()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10 * files))
    folder.check_room(10, validated=validated, resumed=resumed)
    with pytest.raises(TrainingError, match="make room"):
        folder.check_room(11, validated=validated, resumed=resumed)

"""`--track` of every command that trains."""

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.cli.main import build
from training.trainer.run_state.errors import TrainingError


@pytest.mark.parametrize("tracker", ["wandb", "mlflow"])
@pytest.mark.parametrize(
    "command",
    [
        ["train", "demo-scenes", "--data", "nowhere"],
        ["language-model", "lm-ptb-vae", "--data", "nowhere"],
        ["classify", "labels-small-linear", "--data", "nowhere"],
        ["retrain", "photos"],
    ],
)
def test_a_package_that_is_missing_is_told_before_any_work(
    command: list[str], tracker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, tracker, None)
    arguments = ["--out", str(tmp_path / "out"), "--track", tracker]
    result = CliRunner().invoke(build(), [*command, *arguments])
    assert isinstance(result.exception, TrainingError)
    assert f"pip install 'recoquest[{tracker}]'" in str(result.exception)

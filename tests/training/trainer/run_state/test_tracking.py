"""Runs followed by W&B offline and by MLflow in a file; tests of a package that is missing are skipped."""

import importlib
import json
import logging
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.needed import needed_module
from tests.training.runs import assert_same, lines
from tests.training.trainer.scenes import run, stop_and_resume, tiny_recipe
from training.recipes.load import dump_recipe
from training.trainer.run_state.checkpoint import random_state
from training.trainer.run_state.errors import TrainingError
from training.trainer.run_state.metrics_log import MetricsLog
from training.trainer.run_state.tracking import TrackerName, check_trackers

CPU = torch.device("cpu")
_BLOCK = 32768


@pytest.fixture(scope="module")
def mlflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """MLflow with an SQLite file, whose tables take seconds to make."""
    package = needed_module("mlflow", "pip install 'recoquest[mlflow]'")
    file = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{file}")
        yield package


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> Any:
    package = needed_module("wandb", "pip install 'recoquest[wandb]'")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    return package


def written(out: Path, name: str) -> list[tuple[int, float]]:
    """Steps and values of a figure of the run."""
    kind, _, figure = name.partition("/")
    return [(line["step"], line[figure]) for line in lines(out) if line["kind"] == kind]


def wandb_records(file: Path) -> Iterator[Any]:
    """Records of a file that W&B wrote offline, in LevelDB's format of logs."""
    schema = importlib.import_module("wandb.proto.wandb_internal_pb2")
    content, place, parts = file.read_bytes(), 7, b""
    while place + 7 <= len(content):
        left = _BLOCK - place % _BLOCK
        if left < 7:
            place += left
            continue
        _, size, part = struct.unpack("<IHB", content[place : place + 7])
        parts += content[place + 7 : place + 7 + size]
        place += 7 + size
        # A whole record, or the last part of one.
        if part in (1, 4):
            yield schema.Record.FromString(parts)
            parts = b""


@pytest.mark.slow
def test_wandb_follows_a_run_that_is_stopped_and_resumed(scenes: Path, tmp_path: Path, wandb: Any) -> None:
    out = tmp_path / "red-squares"
    stop_and_resume(tiny_recipe(), scenes, out, 4, trackers=[TrackerName.WANDB])
    files = sorted((out / "wandb").glob("offline-run-*/run-*.wandb"))
    records = [record for file in files for record in wandb_records(file)]
    runs = [record.run for record in records if record.WhichOneof("record_type") == "run"]
    assert {each.run_id for each in runs} == {json.loads((out / "trackers.json").read_text())["wandb"]}
    assert (runs[0].display_name, runs[0].project) == ("red-squares", "recoquest")
    config = {item.key: item.value_json for item in runs[0].config.update}
    assert json.loads(config["train"])["batch_size"] == 4
    assert json.loads(config["name"]) == "tiny"
    history = [
        {item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
        for record in records
        if record.WhichOneof("record_type") == "history"
    ]
    for name in ("train/loss", "validation/rsum"):
        found = [(entry["step"], entry[name]) for entry in history if name in entry]
        assert found == written(out, name)
        assert [step for step, _ in found] == sorted({step for step, _ in found})


@pytest.mark.slow
def test_mlflow_follows_a_run_that_is_stopped_and_resumed(scenes: Path, tmp_path: Path, mlflow: Any) -> None:
    out = tmp_path / "red-squares"
    stop_and_resume(tiny_recipe(), scenes, out, 4, trackers=[TrackerName.MLFLOW])
    client = mlflow.MlflowClient()
    (experiment,) = (each for each in client.search_experiments() if each.name == "recoquest")
    (followed,) = client.search_runs([experiment.experiment_id])
    assert (followed.info.run_name, followed.info.status) == ("red-squares", "FINISHED")
    assert followed.data.params["train.batch_size"] == "4"
    assert followed.data.params["model.image.architecture"] == "resnet"
    for name in ("train/loss", "validation/rsum"):
        found = [
            (metric.step, metric.value) for metric in client.get_metric_history(followed.info.run_id, name)
        ]
        assert found == written(out, name)


@pytest.mark.usefixtures("mlflow")
def test_a_server_that_is_away_is_told_once(
    scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with caplog.at_level(logging.WARNING, "training"):
        run(tiny_recipe(), scenes, tmp_path / "out", trackers=[TrackerName.MLFLOW])
    told = [record.getMessage() for record in caplog.records if record.name.startswith("training")]
    assert len([line for line in told if "MLflow no longer follows this run, which continues" in line]) == 1
    assert (tmp_path / "out/bundle").is_dir()


@pytest.mark.slow
@pytest.mark.usefixtures("mlflow")
def test_a_tracker_that_fails_on_the_way_is_given_up_and_draws_no_random_numbers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = random_state(CPU)
    (tmp_path / "recipe.yaml").write_text(dump_recipe(tiny_recipe()))
    with caplog.at_level(logging.WARNING, "training"), MetricsLog(tmp_path, 0, [TrackerName.MLFLOW]) as log:
        log.write(1, "train", {"loss": 1.0})
        log.write(2, "train", {"a name | that MLflow refuses": 1.0})
        log.write(3, "train", {"loss": 0.5})
    assert len(caplog.records) == 1
    assert [line["step"] for line in lines(tmp_path)] == [1, 2, 3]
    assert_same(random_state(CPU), before)


def test_a_folder_of_runs_is_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wandb").mkdir()
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(TrainingError, match="W&B is not installed"):
        check_trackers([TrackerName.WANDB])

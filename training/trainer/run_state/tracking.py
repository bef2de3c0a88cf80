"""Trackers in addition to TensorBoard: Weights & Biases and MLflow, set up by environment variables."""

import json
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Final

import yaml

from training.common.atomic import atomic_file
from training.trainer.run_state.errors import TrainingError

_log = logging.getLogger(__name__)
# Project of W&B or experiment of MLflow, unless a variable of theirs names another.
_PROJECT: Final = "recoquest"


class TrackerName(StrEnum):
    """Name of a tracker and of its package."""

    WANDB = "wandb"
    MLFLOW = "mlflow"


def check_trackers(names: Sequence[TrackerName]) -> None:
    """Make sure that the packages of trackers are installed.

    Raises:
        TrainingError: One is not.
    """
    for name in names:
        package = find_spec(name)
        # W&B keeps runs in a folder of its own name, which Python takes for a package.
        if package is None or package.origin is None:
            raise TrainingError(
                f"{_TRACKERS[name].title} is not installed: pip install 'recoquest[{name}]', or leave out "
                f"--track {name}."
            )


class Tracker(ABC):
    """A run in a tracker.

    Args:
        folder: Folder of the run, which has its name.
        settings: Resolved recipe.
        run: Id of the tracker's run to continue; None: a new one.
    """

    title: ClassVar[str]

    @abstractmethod
    def __init__(self, folder: Path, settings: Mapping[str, Any], run: str | None) -> None: ...

    @property
    @abstractmethod
    def run(self) -> str:
        """Id of the tracker's run."""

    @abstractmethod
    def write(self, step: int, figures: Mapping[str, float]) -> None:
        """Add the figures that belong to the state after `step` steps."""

    @abstractmethod
    def close(self, *, failed: bool) -> None:
        """End the run, and wait until the tracker has all figures."""


class _WeightsAndBiases(Tracker):
    title = "W&B"

    def __init__(self, folder: Path, settings: Mapping[str, Any], run: str | None) -> None:
        import wandb

        resumed = run is not None
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", _PROJECT),
            name=None if resumed or "WANDB_NAME" in os.environ else folder.name,
            dir=os.environ.get("WANDB_DIR", folder),
            config=None if resumed else dict(settings),
            id=run,
            resume="allow",
            reinit="create_new",
            # Warnings name files and ids of records.
            settings=wandb.Settings(console=os.environ.get("WANDB_CONSOLE", "off")),
        )
        # Steps of its own may only grow, and a resumed run repeats those behind its checkpoint.
        self._run.define_metric("*", step_metric="step")

    @property
    def run(self) -> str:
        return str(self._run.id)

    def write(self, step: int, figures: Mapping[str, float]) -> None:
        self._run.log({"step": step, **figures})

    def close(self, *, failed: bool) -> None:
        self._run.finish(exit_code=int(failed))


class _MLflow(Tracker):
    title = "MLflow"

    def __init__(self, folder: Path, settings: Mapping[str, Any], run: str | None) -> None:
        import mlflow
        from mlflow.tracking.context.registry import resolve_tags

        self._mlflow = mlflow
        self._client = mlflow.MlflowClient()
        if run is None:
            started = self._client.create_run(_experiment(mlflow), run_name=folder.name, tags=resolve_tags())
            self._id = str(started.info.run_id)
            mlflow.log_params(dict(_flat(settings)), run_id=self._id)
        else:
            self._id = run
            self._client.update_run(run, status="RUNNING")

    @property
    def run(self) -> str:
        return self._id

    def write(self, step: int, figures: Mapping[str, float]) -> None:
        self._mlflow.log_metrics(dict(figures), step=step, run_id=self._id)

    def close(self, *, failed: bool) -> None:
        self._client.set_terminated(self._id, "FAILED" if failed else "FINISHED")


def _experiment(mlflow: Any) -> str:
    """Id of the experiment of new runs, which is made if it has to be."""
    if (given := os.environ.get("MLFLOW_EXPERIMENT_ID")) is not None:
        return given
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME", _PROJECT)
    experiment = mlflow.get_experiment_by_name(name)
    return str(mlflow.create_experiment(name) if experiment is None else experiment.experiment_id)


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Settings by their dotted keys."""
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


_TRACKERS: Final[Mapping[TrackerName, type[Tracker]]] = {
    TrackerName.WANDB: _WeightsAndBiases,
    TrackerName.MLFLOW: _MLflow,
}


class Trackers:
    """The trackers of a run; one that fails is dropped, and the run continues.

    Args:
        names: Installed trackers.
        folder: Folder of the run, with its recipe.yaml; a resumed run continues in the trackers' runs.
    """

    def __init__(self, names: Sequence[TrackerName], folder: Path) -> None:
        self._followed: dict[TrackerName, Tracker] = {}
        if not names:
            return
        folder = folder.resolve()
        settings = yaml.safe_load((folder / "recipe.yaml").read_text(encoding="utf-8"))
        kept = folder / "trackers.json"
        runs = json.loads(kept.read_text(encoding="utf-8")) if kept.is_file() else {}
        for name in names:
            with self._given_up_on_failure(name):
                self._followed[name] = _TRACKERS[name](folder, settings, runs.get(name))
                runs[name] = self._followed[name].run
                # At once, since the next one may take long to start.
                with atomic_file(kept) as file:
                    file.write(json.dumps(runs).encode())

    def write(self, step: int, figures: Mapping[str, float]) -> None:
        """Add the figures that belong to the state after `step` steps."""
        for name, tracker in list(self._followed.items()):
            with self._given_up_on_failure(name):
                tracker.write(step, figures)

    def close(self, *, failed: bool) -> None:
        """End the runs of the trackers."""
        for name, tracker in list(self._followed.items()):
            with self._given_up_on_failure(name):
                tracker.close(failed=failed)

    @contextmanager
    def _given_up_on_failure(self, name: TrackerName) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - trackers raise all kinds, and none is worth a training
            self._followed.pop(name, None)
            _log.warning(
                "%s no longer follows this run, which continues; metrics.jsonl has all figures. (%s)",
                _TRACKERS[name].title,
                error,
            )

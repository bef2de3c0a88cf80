"""The folder of a run: its files, and whether a run may start or resume in it."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Final

import yaml

from training.common.atomic import atomic_file, write_text
from training.recipes.load import dump_recipe, first_difference, parse_as
from training.recipes.schema import NamedRecipe, Recipe
from training.trainer.run_state.checkpoint import Checkpoint, load_checkpoint
from training.trainer.run_state.errors import TrainingError
from training.trainer.run_state.processes import Processes

_GIB: Final = 2**30


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Names inside the folder of a run."""

    path: Path

    @property
    def data(self) -> Path:
        """Records that were given in memory."""
        return self.path / "data"

    @property
    def bundle(self) -> Path:
        """The encoder with the best validation figure."""
        return self.path / "bundle"

    @property
    def checkpoints(self) -> Path:
        """Holds `last.pt` and `best.pt`."""
        return self.path / "checkpoints"

    @property
    def last(self) -> Path:
        """The newest checkpoint."""
        return self.checkpoints / "last.pt"

    @property
    def best(self) -> Path:
        """The checkpoint with the best validation figure."""
        return self.checkpoints / "best.pt"

    def recover(self) -> bool:
        """Remove what a run left that was killed before its first checkpoint; tell whether there is one."""
        if not self.last.is_file() and self.path.is_dir():
            shutil.rmtree(self.path)
        return self.last.is_file()

    def check_unused(self) -> None:
        """Make sure that a new run can start here.

        Raises:
            TrainingError: There is something already, or nothing can be written.
        """
        if self.path.exists() and not self.path.is_dir():
            raise TrainingError(f"{self.path} is a file: give another folder.")
        # A run on records in memory that was refused has left these records.
        if self.path.is_dir() and any(entry != self.data for entry in self.path.iterdir()):
            raise TrainingError(
                f"{self.path} is not empty: give a new folder, or --resume to continue the run in it."
            )
        try:
            with TemporaryFile(dir=self._existing):
                pass
        except OSError as error:
            raise TrainingError(
                f"Nothing can be written to {self._existing}: {error.strerror or error}."
            ) from error

    def check_room(self, checkpoint_bytes: int, *, validated: bool, resumed: bool) -> None:
        """Make sure that the disk has room for the checkpoints of the run that are still to come.

        A file replaces another only once it is complete, so there is one more of them for a moment.
        The file that a run was resumed from takes its space on the disk as long as its numbers are mapped.

        Args:
            checkpoint_bytes: Size of a checkpoint.
            validated: The best checkpoint is kept next to the last.
            resumed: The run continues from a checkpoint.

        Raises:
            TrainingError: It has not.
        """
        kept = (self.last, self.best) if validated else (self.last,)
        needed = checkpoint_bytes * (1 + resumed + sum(not path.exists() for path in kept))
        free = shutil.disk_usage(self._existing).free
        if needed > free:
            raise TrainingError(
                f"The checkpoints of the run need {needed / _GIB:.1f} GiB, and the disk of {self.path} has "
                f"{free / _GIB:.1f} left: make room, or give another folder."
            )

    @property
    def _existing(self) -> Path:
        """The folder itself, or the nearest around it that there is."""
        return next(path for path in (self.path.absolute(), *self.path.absolute().parents) if path.exists())

    def checkpoint_to_resume(
        self, recipe: NamedRecipe, processes: Processes, *, resume: bool
    ) -> Checkpoint | None:
        """Return the checkpoint to resume from, if any; otherwise make sure that a new run can start here.

        Raises:
            TrainingError: There is no such checkpoint, or something is here already.
        """
        if resume:
            return self.read_checkpoint(recipe, processes.count)
        if processes.is_main:
            self.check_unused()
        return None

    def read_checkpoint(self, recipe: NamedRecipe, processes: int = 1) -> Checkpoint:
        """The newest checkpoint of the run in this folder.

        Raises:
            TrainingError: There is none, it is damaged, or it belongs to another recipe or another number of
                processes.
        """
        if not self.last.is_file():
            raise TrainingError(f"There is no run to resume in {self.path}: start it without --resume.")
        checkpoint = load_checkpoint(self.last)
        theirs = parse_as(type(recipe), yaml.safe_load(checkpoint.recipe), f"The recipe of {self.last}")
        # A release may reword what a recipe says of itself.
        words = {"description": recipe.description, "source": recipe.source}
        key = first_difference(_settled(recipe, theirs), theirs.model_copy(update=words))
        if key is not None:
            raise TrainingError(
                f"The run in {self.path} was started with another {key}: resume it with the same recipe and "
                "settings, or start a new run in another folder."
            )
        theirs_count = len(checkpoint.random)
        if theirs_count != processes:
            raise TrainingError(
                f"The run in {self.path} was started with {_counted(theirs_count)}, not {processes}: resume "
                f"it with {theirs_count}, because each has its own random numbers."
            )
        return checkpoint

    def write_recipe(self, recipe: NamedRecipe) -> None:
        """Write the resolved recipe."""
        with atomic_file(self.path / "recipe.yaml") as file:
            file.write(dump_recipe(recipe).encode())

    def write_results(self, results: Mapping[str, Any]) -> None:
        """Write `results.json`, of a run that ends in figures and not in a bundle."""
        write_text(self.path / "results.json", json.dumps(results, indent=2))


def _settled(recipe: NamedRecipe, kept: NamedRecipe) -> NamedRecipe:
    """The recipe with what its run has settled for itself."""
    if isinstance(recipe, Recipe) and isinstance(kept, Recipe):
        return recipe.settled_as(kept)
    return recipe


def _counted(processes: int) -> str:
    return "1 process" if processes == 1 else f"{processes} processes"

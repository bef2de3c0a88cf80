"""The folder of a run of text classification: its checkpoints, recipe and results."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from training.atomic import atomic_file
from training.classification.config import ClassificationRecipe
from training.classification.load import dump_classification_recipe, parse_classification_recipe
from training.trainer.checkpoint import Checkpoint, load_checkpoint
from training.trainer.errors import TrainingError


@dataclass(frozen=True, slots=True)
class ClassificationFolder:
    """Names inside the folder of a run."""

    path: Path

    @property
    def last(self) -> Path:
        """The newest checkpoint."""
        return self.path / "checkpoints" / "last.pt"

    @property
    def best(self) -> Path:
        """The checkpoint with the best figure on the development set."""
        return self.path / "checkpoints" / "best.pt"

    def check_unused(self) -> None:
        """Make sure that a new run can start here.

        Raises:
            TrainingError: There is something already.
        """
        if self.path.exists() and not self.path.is_dir():
            raise TrainingError(f"{self.path} is a file: give another folder.")
        if self.path.is_dir() and any(self.path.iterdir()):
            raise TrainingError(
                f"{self.path} is not empty: give a new folder, or --resume to go on with the run in it."
            )

    def read_checkpoint(self, recipe: ClassificationRecipe) -> Checkpoint:
        """The newest checkpoint of the run in this folder.

        Raises:
            TrainingError: There is none, it is damaged, or it belongs to another recipe.
        """
        if not self.last.is_file():
            raise TrainingError(f"There is no run to resume in {self.path}: start it without --resume.")
        checkpoint = load_checkpoint(self.last)
        tree = yaml.safe_load(checkpoint.recipe)
        theirs = parse_classification_recipe(tree, f"The recipe of {self.last}")
        # A release may reword what a recipe says of itself.
        words = {"description": recipe.description, "source": recipe.source}
        if theirs.model_copy(update=words) != recipe:
            raise TrainingError(
                f"The run in {self.path} was started with other settings: resume it with the same recipe and "
                "--set, or start a new run in another folder."
            )
        return checkpoint

    def write_recipe(self, recipe: ClassificationRecipe) -> None:
        """Write the resolved recipe."""
        with atomic_file(self.path / "recipe.yaml") as file:
            file.write(dump_classification_recipe(recipe).encode())

    def write_results(self, results: Mapping[str, Any]) -> None:
        """Write `results.json`."""
        with atomic_file(self.path / "results.json") as file:
            file.write(json.dumps(results, indent=2).encode() + b"\n")

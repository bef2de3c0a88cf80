"""docs/objectives.md: its table is complete, and its example works as it stands there."""

import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

import training.objectives
from tests.training.objectives.cases import build, random_batch
from tests.training.recipes.shrink import shrunk
from tests.training.trainer.scenes import write_scenes
from training.models.features import Features
from training.objectives.registry import objective_types, parse_objective
from training.objectives.similarity import cosine_matrix
from training.recipes.load import load_recipe
from training.trainer.run import train

PAGE = Path(__file__).parents[3] / "docs" / "objectives.md"


def block(language: str) -> str:
    """The only block of a language in the page."""
    (found,) = re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    return str(found)


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The documented module in a folder that counts as one of the package's."""
    folder = tmp_path / "objectives"
    folder.mkdir()
    (folder / "siglip.py").write_text(block("python"), encoding="utf-8")
    monkeypatch.setattr(training.objectives, "__path__", [*training.objectives.__path__, str(folder)])
    objective_types.cache_clear()
    yield
    objective_types.cache_clear()
    sys.modules.pop("training.objectives.siglip", None)
    vars(training.objectives).pop("siglip", None)


def test_every_objective_is_in_the_table() -> None:
    table = PAGE.read_text(encoding="utf-8").partition("## Which there are")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \|", table, re.M)
    assert sorted(rows) == sorted(objective_types())


def test_the_package_is_searched_once() -> None:
    assert objective_types() is objective_types()


def by_loops(batch: Features) -> Tensor:
    """SigLIP's loss, pair by pair."""
    cosines = cosine_matrix(batch["image"].embedding, batch["text"].embedding)
    mask = batch.positive_mask
    assert mask is not None
    total = 0.0
    for image in range(len(cosines)):
        for text in range(len(cosines)):
            logit = 10 * float(cosines[image, text]) - 10
            if image == text:
                total += math.log1p(math.exp(-logit))
            elif not mask[image, text]:
                total += math.log1p(math.exp(logit))
    return torch.tensor(total / len(cosines), dtype=torch.float64)


@pytest.mark.usefixtures("example")
def test_example_is_the_loss_it_says() -> None:
    batch = random_batch()
    objective = build(parse_objective({"name": "siglip"}), batch)
    # log(10) is kept in float32.
    torch.testing.assert_close(objective(batch).total, by_loops(batch), rtol=1e-6, atol=0)


@pytest.mark.usefixtures("example")
def test_example_trains(tmp_path: Path) -> None:
    path = tmp_path / "siglip-scenes.yaml"
    path.write_text(block("yaml"), encoding="utf-8")
    recipe = shrunk(load_recipe(str(path)), tmp_path)
    assert type(recipe.objective).__name__ == "SigLIPSettings"
    scenes = write_scenes(tmp_path / "scenes")
    result = train(recipe, scenes, tmp_path / "run", device="cpu", show_progress=False)
    assert math.isfinite(result.metrics["loss"])


def test_example_is_a_file_of_about_thirty_lines() -> None:
    code = [line for line in block("python").splitlines() if line.strip()]
    assert len(code) <= 32
    assert max(map(len, code)) <= 110

"""docs/research/objectives.md: its table is complete, and its examples work as they are."""

import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.training.objectives.cases import build, random_batch
from tests.training.recipes.shrink import shrunk
from tests.training.trainer.scenes import write_scenes
from training.models.features import Features
from training.objectives.base import objective_names, parse_objective
from training.objectives.similarity import cosine_matrix
from training.recipes.load import load_recipe
from training.trainer.run import train

PAGE = (Path(__file__).parents[3] / "docs" / "research" / "objectives.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """The blocks of a language in the page."""
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.M | re.S)


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The documented recipe in a folder with the documented module."""
    (recipe,) = blocks("yaml")
    (tmp_path / "siglip-scenes.yaml").write_text(recipe, encoding="utf-8")
    (tmp_path / "my_losses.py").write_text("\n\n".join(blocks("python")), encoding="utf-8")
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path / "siglip-scenes.yaml"
    sys.modules.pop("my_losses", None)


def test_every_objective_is_in_the_table() -> None:
    table = PAGE.partition("## Which there are")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \|", table, re.M)
    assert sorted(rows) == objective_names()


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


def test_examples_are_the_losses_they_say(recipe: Path) -> None:
    settings = load_recipe(str(recipe), ["objective.scale=10"]).objective
    batch = random_batch()
    # log(10) is kept in float32.
    torch.testing.assert_close(build(settings, batch)(batch), by_loops(batch), rtol=1e-6, atol=0)
    cosines = cosine_matrix(batch["image"].embedding, batch["text"].embedding)
    assert batch.positive_mask is not None
    others = (0.2 - cosines.diagonal().unsqueeze(1) + cosines).clamp(min=0)[~batch.positive_mask].sum()
    hinge = build(parse_objective("my_losses:MyHinge"), batch)
    torch.testing.assert_close(hinge(batch), others)


def test_example_trains(recipe: Path, tmp_path: Path) -> None:
    described = shrunk(load_recipe(str(recipe)), tmp_path)
    result = train(
        described, write_scenes(tmp_path / "scenes"), tmp_path / "run", device="cpu", show_progress=False
    )
    assert math.isfinite(result.metrics["loss"])
    weights = torch.load(tmp_path / "run" / "checkpoints" / "last.pt")["task"]
    assert weights["objective.module.log_scale"] == pytest.approx(math.log(5), abs=0.1)


def test_the_documented_loop_learns(monkeypatch: pytest.MonkeyPatch) -> None:
    (loop,) = re.findall(r"^    import torch\n(?:    .*\n|\n)*", PAGE, re.M)
    torch.manual_seed(0)
    pairs = torch.randn(64, 5)
    values: list[Tensor] = []
    names = {
        "image_encoder": nn.Linear(5, 4),
        "text_encoder": nn.Linear(5, 4),
        "batches": [(pairs, pairs)] * 40,
        "report": values.append,
    }
    exec(re.sub(r"^    ", "", loop, flags=re.M), names)
    assert values[-1] < 0.7 * values[0]

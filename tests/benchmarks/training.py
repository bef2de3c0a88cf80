"""Training from files, and from prepared images, beside the bare forward and backward pass: samples a second.

Run `python -m tests.benchmarks.training`, or `make benchmark-training`. The models are ViT-B/32 CLIP with
InfoNCE and the recipe of ReCo for MIMIC-CXR with its ResNet-50, both with random weights.
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
import typer
from PIL import Image

from training.common.manifest import Record, write_manifest
from training.models.dual_encoder import build_dual_encoder
from training.models.learned_tokenizer import build_tokenizer
from training.models.preprocessing import TextPreprocessing
from training.objectives.base import ObjectiveContext
from training.recipes.library import shipped
from training.recipes.load import apply_overrides, parse_recipe
from training.recipes.schema import Recipe
from training.trainer.modules import EncoderModule
from training.trainer.optimisation.parameter_groups import build_optimizer
from training.trainer.run import train
from training.trainer.run_state.devices import build_fabric
from training.trainer.setup import thaw_random_towers

_RECIPES: Final = {"ViT-B/32 CLIP": "fine-tuning", "ResNet-50, ReCo for MIMIC-CXR": "reco-mimic-cxr"}
# The first steps allocate memory.
_UNCOUNTED: Final = 2


def main() -> None:
    """Measure each model, trained by a run and bare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--batch", type=int, default=8, help="pairs of a step (default: 8)")
    parser.add_argument("--steps", type=int, default=4, help="counted steps (default: 4)")
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    typer.echo(f"{'samples/s':34}{'bare':>8}{'from files':>12}{'ratio':>8}{'prepared':>12}{'ratio':>8}")
    for title, name in _RECIPES.items():
        recipes = [_recipe(name, arguments.batch, arguments.steps, prepared=each) for each in (False, True)]
        rates = [_timed_run(recipe, arguments.device) for recipe in recipes]
        bare = _bare(recipes[0], arguments.device)
        shares = "".join(f"{rate:>12.2f}{rate / bare:>8.2f}" for rate in rates)
        typer.echo(f"{title:34}{bare:>8.2f}{shares}")


def _timed_run(recipe: Recipe, device: str) -> float:
    with tempfile.TemporaryDirectory() as folder:
        return _run(recipe, Path(folder), device)


def _recipe(name: str, batch: int, steps: int, *, prepared: bool) -> Recipe:
    tree: dict[str, Any] = shipped().tree(name)
    apply_overrides(
        tree,
        [
            "model.image.pretrained=null",
            "model.text.pretrained=null",
            "model.text.vocabulary_size=1000",
            f"train.batch_size={batch}",
            "train.epochs=null",
            f"train.steps={steps + _UNCOUNTED}",
            "train.log_every_steps=1",
            f"data.cache_images={'true' if prepared else 'false'}",
        ],
    )
    # The bare step trains as many layers as the run does.
    return thaw_random_towers(parse_recipe(tree, f"Recipe {name}"))


def _run(recipe: Recipe, folder: Path, device: str) -> float:
    """Samples a second of a run from JPEG files of 500 x 375."""
    generator = np.random.default_rng(0)
    (folder / "data" / "images").mkdir(parents=True)
    records = []
    for number in range(4 * recipe.train.batch_size):
        coarse = generator.integers(0, 256, (24, 24, 3), dtype=np.uint8)
        path = f"images/{number}.jpg"
        picture = Image.fromarray(coarse).resize((500, 375), Image.Resampling.BICUBIC)
        picture.save(folder / "data" / path, quality=90)
        records.append(Record(id=str(number), image=path, split="train", texts=(_text(number),)))
    write_manifest(folder / "data", records)
    train(recipe, folder / "data", folder / "run", device=device, show_progress=False)
    lines = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    rates: list[float] = [line["samples_per_second"] for line in lines[_UNCOUNTED:]]
    return statistics.median(rates)


def _text(number: int) -> str:
    return f"two people and dog number {number} walk along the beach in the evening of a day in May"


def _bare(recipe: Recipe, device: str) -> float:
    """Samples a second of forward pass, loss, backward pass and optimizer on one batch in memory."""
    batch, fabric = recipe.train.batch_size, build_fabric(recipe.train.precision, device)
    texts = [_text(number) for number in range(4 * batch)]
    assert recipe.model.text is not None
    tokenizer = build_tokenizer(recipe.model.text, texts)
    model = build_dual_encoder(recipe.model, tokenizer, load_pretrained=False).to(fabric.device)
    objective = recipe.objective.with_temperature(lambda: None).build(ObjectiveContext(dim=recipe.model.dim))
    task = EncoderModule(model.train(), objective.to(fabric.device))
    optimizer = build_optimizer(task, recipe, fabric.device)
    size = recipe.preprocessing.image.size
    pixels = torch.randn(batch, 3, size, size, device=fabric.device)
    tokens = TextPreprocessing(recipe.preprocessing.text, tokenizer)(texts[:batch]).to(fabric.device)
    times = []
    for _ in range(recipe.train.steps or 0):
        begun = time.perf_counter()
        optimizer.zero_grad()
        with fabric.autocast():
            features = model(pixels, tokens)
        task(features).total.backward()
        optimizer.step()
        if fabric.device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begun)
    return batch / statistics.median(times[_UNCOUNTED:])


if __name__ == "__main__":
    main()

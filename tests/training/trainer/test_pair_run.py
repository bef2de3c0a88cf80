"""Whole runs whose encoder compares images and texts pair by pair: they are measured, and fill no index."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.training.trainer.scenes import tiny_recipe
from tests.training.trainer.test_run import run
from training.common.errors import BundleError, RecipeError
from training.common.manifest import read_manifest
from training.evaluation.embedding import embed_manifest
from training.evaluation.evaluate import measure
from training.evaluation.retrieval import pair_retrieval
from training.imaging.images import decode_image
from training.models.encoder import load_encoder
from training.objectives.base import ObjectiveContext
from training.recipes.load import parse_recipe
from training.recipes.schema import Recipe
from training.trainer.requirements import check_requirements

pytestmark = pytest.mark.usefixtures("one_thread")


def pair_recipe(objective: str = "scan", queries: str | None = "words", **train: object) -> Recipe:
    tree: dict[str, Any] = json.loads(tiny_recipe(**train).model_dump_json())
    tree["model"] |= {"local_features": True, "share_local_head": True}
    tree["model"]["pair_attention"] = None if queries is None else {"queries": queries}
    tree["objective"] = {"name": objective}
    return parse_recipe(tree, "A recipe of pairs")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, scenes: Path) -> Path:
    out = tmp_path_factory.mktemp("pairs") / "out"
    return run(pair_recipe(epochs=2), scenes, out).bundle


def test_recall_is_that_of_the_pairs(trained: Path, scenes: Path) -> None:
    """Of every pair alone, whatever else is compared beside it."""
    encoder = load_encoder(trained, "cpu", for_pairs=True)
    manifest = read_manifest(scenes).split("val")
    embedded = embed_manifest(encoder, manifest, batch_size=4, show_progress=False)
    scores = embedded.pair_scores
    assert scores is not None
    assert scores.shape == (6, 12)
    pixels = [encoder.prepare_image(decode_image(manifest.image_path(record))) for record in manifest.records]
    for row, image in enumerate(pixels):
        regions = encoder.image_entries(image[None])
        alone = [encoder.compare(regions, encoder.text_entries([text]))[0, 0] for text in embedded.texts]
        np.testing.assert_allclose(scores[row], alone, atol=1e-5)
    report = measure(encoder, embedded)
    assert report.captions == pair_retrieval(scores, embedded.text_matches())
    assert report.geometry is None
    assert report.labels is not None
    assert report.labels.image_to_image is not None
    assert report.labels.text_to_image is None


@pytest.mark.slow
def test_pairs_of_a_known_colour_are_found(scenes: Path, tmp_path: Path) -> None:
    """Validation ranks by pairs: after some epochs the texts of a colour are found far above chance."""
    result = run(pair_recipe(epochs=30), scenes, tmp_path / "out")
    # A random order of 6 images and of 12 texts has 17 + 83 + 100 and 17 + 68 + 98.
    assert result.metrics["rsum"] > 420
    assert "alignment" not in result.metrics


def test_such_a_bundle_is_taken_only_to_measure(trained: Path) -> None:
    with pytest.raises(BundleError, match=r"no vectors to search by.*`recoquest evaluate`"):
        load_encoder(trained, "cpu")
    assert load_encoder(trained, "cpu", for_pairs=True).pair_attention is not None
    assert "Vectors: none to search by" in (trained / "README.md").read_text(encoding="utf-8")


def test_an_encoder_of_vectors_compares_no_pairs(scenes: Path, tmp_path: Path) -> None:
    recipe = pair_recipe("infonce", None, steps=1, epochs=None)
    encoder = load_encoder(run(recipe, scenes, tmp_path / "out").bundle, "cpu", for_pairs=True)
    assert encoder.pair_attention is None
    with pytest.raises(RecipeError, match="by their vectors"):
        encoder.compare([], [])
    embedded = embed_manifest(encoder, read_manifest(scenes).split("val"), show_progress=False)
    assert embedded.pair_scores is None


@pytest.mark.parametrize(
    ("objective", "queries", "said"),
    [
        ("scan", None, r"give model\.pair_attention"),
        ("vse", "words", r"vse doesn't use model\.pair_attention"),
    ],
)
def test_objective_and_model_go_together(objective: str, queries: str | None, said: str) -> None:
    recipe = pair_recipe(objective, queries)
    context = ObjectiveContext(recipe.model.dim, pair_attention=recipe.model.pair_attention)
    with pytest.raises(RecipeError, match=said):
        check_requirements(recipe.objective.build(context), recipe)

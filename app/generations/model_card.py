"""Cards of registered models: where one comes from, how good it is, and where it is used."""

import re
from pathlib import Path

import yaml
from pydantic import ValidationError

from app.edge.schemas import DIGEST_PATTERN
from app.generations.schemas import Generation, ModelCard, ModelSummary, Retraining, Training
from index.catalogue.jobs import Job, job_that_made
from index.engine import SearchEngine
from index.errors import UnregisteredModelError
from index.generations.models import generations_by
from training.models.bundle import CONFIG_FILE
from training.models.config import DualEncoderConfig
from training.models.onnx.files import has_regions


def model_card(engine: SearchEngine, digest: str, *, loaded: bool) -> ModelCard:
    """Gather everything that is known of a registered model; files of the server are not named.

    Raises:
        UnregisteredModelError: No registered model has this digest.
    """
    info = next((info for info in engine.models() if info.digest == digest), None)
    if info is None:
        raise UnregisteredModelError(digest)
    with engine.home.catalogue.read() as session:
        generations = generations_by(session, digest)
        job = job_that_made(session, digest)
    return ModelCard(
        **dict(ModelSummary.of(info, loaded=loaded)),
        regions=has_regions(engine.home.bundles_folder / digest),
        towers=_towers(engine.home.bundles_folder / digest / CONFIG_FILE),
        training=_training(info.recipe),
        retraining=None if job is None else _retraining(job),
        generations=[Generation.of(each) for each in generations],
    )


def _towers(config: Path) -> dict[str, str] | None:
    try:
        read = DualEncoderConfig.model_validate_json(config.read_bytes())
    except (OSError, ValidationError):
        return None
    towers = {"image": read.image, "text": read.text, "audio": read.audio}
    return {name: tower.architecture for name, tower in towers.items() if tower is not None}


def _training(recipe_yaml: str) -> Training | None:
    """Training by the recipe of a bundle; None where there is none that this release reads."""
    try:
        # The whole schema of recipes needs torch.
        recipe = yaml.safe_load(recipe_yaml)
        train = recipe["train"]
        # Registered bundles are in folders that are named by their digests; others are nobody's business.
        base = Path(train.get("start_from") or "").name
        return Training(
            recipe=recipe["name"],
            description=recipe["description"],
            objective=recipe["objective"]["name"],
            started_from=base if re.fullmatch(DIGEST_PATTERN, base) else None,
            epochs=train.get("epochs"),
            steps=train.get("steps"),
            batch_size=train["batch_size"],
            seed=train.get("seed", 0),
        )
    except (yaml.YAMLError, ValidationError, LookupError, TypeError, AttributeError):
        return None


def _retraining(job: Job) -> Retraining:
    kept = {name: value for name, value in (job.result or {}).items() if name in Retraining.model_fields}
    return Retraining(job=job.id, **kept)

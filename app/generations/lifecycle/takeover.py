"""Promotion of a retrained model: evaluated against the active one, embedded, and activated."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import typer

from app.generations.lifecycle.build_generation import build_generation, open_generation, swap_to
from app.generations.lifecycle.judge import MIN_IMAGES, compare_models
from app.generations.lifecycle.verdict import Decision, ModelVerdict, Outcome, StoredVerdict
from app.settings import Settings
from index.catalogue.collections import Generation, require_active
from index.engine import SearchEngine
from index.errors import ActiveChangedError
from index.files.bundles import registered_bundle
from index.home import Home
from training.common.atomic import atomic_file
from training.common.manifest import read_manifest
from training.models.bundle import BundleInfo
from training.recipes.load import load_recipe

# Comparisons before the decision is left to whoever changes the active model so often.
_MAX_COMPARISONS: Final = 3
_JUDGED: Final = "judged.json"


def searched_with(home: Home, collection: str) -> tuple[Generation, BundleInfo]:
    """The active generation of a collection, and the bundle of its model.

    Raises:
        UnknownCollectionError: No collection has this name.
        NoActiveGenerationError: The collection has no active generation yet.
        BundleError: The bundle is missing or damaged.
    """
    with home.catalogue.read() as session:
        generation, _ = require_active(session, collection)
    return generation, registered_bundle(generation, home.bundles_folder)


def write_kept(path: Path, content: str) -> None:
    """Write a small file of a retraining's folder, whole or not at all."""
    with atomic_file(path) as file:
        file.write(content.encode() + b"\n")


@dataclass(frozen=True, slots=True)
class Promotion:
    """Decides what becomes of a retrained model.

    A model is compared with the active one and may replace that one only. If another model becomes active
    meanwhile, it is compared again.

    Attributes:
        engine: Engine of the home.
        settings: Settings of this process.
        collection: Collection of the training data.
        out: Folder of the retraining.
        new: Bundle of the new model.
        metric: Metric that has to rise; None: see `app.generations.lifecycle.judge.compare_models`.
        gain: Amount by which the metric has to rise.
        promote: Whether to activate the model if it passes.
        batch_size: Images a forward pass.
    """

    engine: SearchEngine
    settings: Settings
    collection: str
    out: Path
    new: BundleInfo
    metric: str | None
    gain: float
    promote: bool
    batch_size: int

    def decide(self) -> Outcome:
        """Compare the models, embed the collection with one that passes, and activate it if `promote`.

        Raises:
            RecoquestError: Something that the user can mend.
        """
        if self.new.digest == self._begun_with():
            typer.echo(
                "No epoch made the model better on the images for validation, so there is no new model, and "
                f"{self.collection} is searched as before. Judge more hits, or try another rate or more "
                "epochs with --set and another --out."
            )
            return self._outcome("unchanged", None, self._verdict_against(self.new))
        for _ in range(_MAX_COMPARISONS):
            active, base = searched_with(self.engine.home, self.collection)
            if base.digest == self.new.digest:
                # An earlier attempt or an operator has activated it.
                return self._outcome("promoted", active.id, self._stored_verdict())
            verdict = self._verdict_against(base)
            if verdict is not None and verdict.verdict == "not better":
                return self._outcome("rejected", None, verdict)
            activated = verdict is not None and verdict.passed and self.promote
            generation, encoder, seconds = open_generation(
                self.engine, self.settings, self.collection, self.new.folder, None
            )
            build_generation(self.engine, generation, encoder, self.batch_size, activated=activated)
            if not activated:
                return self._outcome("waiting", generation.id, verdict)
            try:
                swap_to(
                    self.engine,
                    self.settings,
                    generation,
                    encoder,
                    seconds,
                    self.batch_size,
                    instead_of=base.digest,
                )
            except ActiveChangedError as error:
                typer.echo(str(error))
                continue
            return self._outcome("promoted", generation.id, verdict)
        typer.echo(
            f"It was judged {_MAX_COMPARISONS} times, and each time {self.collection!r} came to be searched "
            "with another model before it could take over."
        )
        return self._outcome("waiting", generation.id, verdict)

    def _begun_with(self) -> str:
        """Digest of the model that the retraining went on from: bundles lie in folders of that name."""
        return Path(load_recipe(str(self.out / "recipe.yaml")).train.start_from or "").name

    def _verdict_against(self, base: BundleInfo) -> ModelVerdict | None:
        """Verdict on the new model against another, stored until it is compared with a third."""
        found = self._stored_verdict(against=base.digest)
        # Earlier releases compared without an interval.
        if found is None or found.verdict is None:
            found = compare_models(
                base,
                self.new,
                read_manifest(self.out / "data"),
                gain=self.gain,
                metric=self.metric,
                device=self.settings.device,
                batch_size=self.batch_size,
            )
        if found is None:
            typer.echo(
                "No images that are held out (split test or val) can judge the new model: that takes two "
                "with different texts, or eleven with labels."
            )
            return None
        kept = StoredVerdict(against=base.digest, judgement=found)
        write_kept(self.out / _JUDGED, kept.model_dump_json(indent=2))
        on = f"{found.metric} on {found.images:,} images held out ({found.held_out})"
        if base.digest == self.new.digest:
            typer.echo(f"{on}: {found.before:.2f}.")
        else:
            typer.echo(
                f"{on}: {found.before:.2f} before, by {base.digest[:12]}, {found.after:.2f} after (a rise of "
                f"{found.low:.2f} to {found.high:.2f}; chance gives {found.chance:.2f}): the verdict "
                f"on the new model is {found.verdict}."
            )
            if found.verdict == "not enough to judge":
                typer.echo(f"It takes {MIN_IMAGES} held-out images with texts, or labels, of 25 patients.")
        return found

    def _stored_verdict(self, against: str | None = None) -> ModelVerdict | None:
        """Verdict of the last comparison, if it was with a model of this digest; None: with any."""
        path = self.out / _JUDGED
        if not path.is_file():
            return None
        kept = StoredVerdict.model_validate_json(path.read_bytes())
        return kept.judgement if against in (None, kept.against) else None

    def _outcome(self, decision: Decision, generation: int | None, verdict: ModelVerdict | None) -> Outcome:
        return Outcome(
            verdict=decision,
            collection=self.collection,
            generation=generation,
            bundle=None if decision == "unchanged" else self.new.digest,
            judgement=verdict,
        )

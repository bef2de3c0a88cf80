"""Which model a retrained one is judged against, and takes the place of, where others come between."""

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from app.engine import open_engine
from app.generations import retraining
from app.generations.build import build_generation, open_generation, swap_to
from app.generations.retraining import decide, searched_with
from app.generations.schemas import Outcome
from app.settings import Settings
from index.catalogue.collections import Generation
from index.engine import SearchEngine
from tests.app.conftest import COLLECTION, Indexed, make_bundle
from tests.app.generations.test_build import coloured
from training.common.manifest import read_manifest, write_manifest
from training.models.bundle import read_bundle
from training.recipes.load import dump_recipe, load_recipe


@dataclass(frozen=True)
class Retrained:
    """A collection that is searched in its first generation, and what a retraining of it has just trained.

    Attributes:
        engine: The index.
        settings: Its settings.
        out: Folder of the retraining.
        new: Folder of the bundle that came out of it.
        first: The generation that is searched.
        other: Another, by another model.
    """

    engine: SearchEngine
    settings: Settings
    out: Path
    new: Path
    first: Generation
    other: Generation

    def decide(self, gain: float, *, promote: bool) -> Outcome:
        new = read_bundle(self.new)
        retrained = retraining.Retrained(COLLECTION, self.out, new, None, gain, promote)
        return decide(self.engine, self.settings, retrained, batch_size=8)

    def search_in(self, generation: Generation) -> None:
        found = open_generation(self.engine, self.settings, COLLECTION, None, generation.id)
        swap_to(self.engine, self.settings, *found, batch_size=8)

    def searched(self) -> int:
        return self.engine.active(COLLECTION).generation


@pytest.fixture
def retrained(own: Indexed, tmp_path: Path) -> Iterator[Retrained]:
    settings = Settings(home=own.settings.home, device="cpu", refresh_s=0.01, keep_generations=99)
    with closing(open_engine(settings)) as engine:
        first, base = searched_with(engine.home, COLLECTION)
        out = tmp_path / "out"
        out.mkdir()
        recipe = load_recipe("demo-scenes", [f"train.start_from={base.folder}"])
        (out / "recipe.yaml").write_text(dump_recipe(recipe))
        # Enough to judge by: any network is above chance on them.
        data = coloured(out / "data", 104, colours=26)
        write_manifest(data.folder, [replace(record, texts=()) for record in data.records])
        other, encoder, _ = open_generation(
            engine, settings, COLLECTION, make_bundle(tmp_path / "other", seed=1), None
        )
        build_generation(engine, other, encoder, 8)
        yield Retrained(engine, settings, out, make_bundle(tmp_path / "new", seed=2), first, other)


def test_it_is_judged_against_what_is_searched_by_then(
    retrained: Retrained, capsys: pytest.CaptureFixture[str]
) -> None:
    waiting = retrained.decide(-1000, promote=False)
    assert (waiting.verdict, retrained.searched()) == ("waiting", retrained.first.id)
    retrained.search_in(retrained.other)
    # What has passed against the first model does not pass against this one.
    rejected = retrained.decide(1000, promote=True)
    assert f"before, by {retrained.other.digest[:12]}" in capsys.readouterr().out
    assert (rejected.verdict, rejected.generation) == ("rejected", None)
    assert retrained.searched() == retrained.other.id
    assert waiting.judgement is not None
    assert rejected.judgement is not None
    assert rejected.judgement.after == waiting.judgement.after


def test_a_model_that_few_images_judge_waits_for_a_person(
    retrained: Retrained, capsys: pytest.CaptureFixture[str]
) -> None:
    data = read_manifest(retrained.out / "data")
    write_manifest(data.folder, data.records[:32])
    outcome = retrained.decide(-1000, promote=True)
    assert (outcome.verdict, retrained.searched()) == ("waiting", retrained.first.id)
    assert outcome.judgement is not None
    assert outcome.judgement.verdict == "not enough to judge"
    assert "It takes 100 held-out images" in capsys.readouterr().out
    # A verdict of an earlier release is made again.
    path = retrained.out / "judged.json"
    kept = json.loads(path.read_text())
    for name in ("verdict", "low", "high", "chance"):
        del kept["judgement"][name]
    path.write_text(json.dumps(kept | {"judgement": kept["judgement"] | {"passed": True}}))
    assert retrained.decide(-1000, promote=True).verdict == "waiting"


@pytest.mark.parametrize("promote", [False, True])
def test_how_to_search_in_it_is_said_where_it_is_not_activated_at_once(
    retrained: Retrained, capsys: pytest.CaptureFixture[str], promote: bool
) -> None:
    outcome = retrained.decide(-1000, promote=promote)
    said = capsys.readouterr()
    advice = f"To search in it: recoquest activate {COLLECTION} {outcome.generation}"
    assert (advice in said.err) == (not promote)
    assert ("is now searched in generation" in said.out) == promote
    if promote:
        assert (outcome.verdict, outcome.generation) == ("promoted", retrained.searched())
        # It is not judged again after an attempt that was killed before it could write what came out.
        assert retrained.decide(1000, promote=False) == outcome
        assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("changes", "verdict", "judged"), [(1, "promoted", 2), (9, "waiting", 3)])
def test_a_model_that_is_searched_with_in_the_last_moment_is_not_replaced_unjudged(
    retrained: Retrained,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    changes: int,
    verdict: str,
    judged: int,
) -> None:
    left, others = iter(range(changes)), cycle([retrained.other, retrained.first])

    def swap_after_somebody_else(*arguments: Any, **named: Any) -> None:
        if next(left, None) is not None:
            retrained.search_in(next(others))
        swap_to(*arguments, **named)

    monkeypatch.setattr(retraining, "swap_to", swap_after_somebody_else)
    outcome = retrained.decide(-1000, promote=True)
    printed = capsys.readouterr().out
    assert (outcome.verdict, printed.count("the new model is better")) == (verdict, judged)
    assert outcome.generation not in (None, retrained.first.id, retrained.other.id)
    assert retrained.searched() == (outcome.generation if verdict == "promoted" else retrained.other.id)
    assert ("It was judged 3 times" in printed) == (verdict == "waiting")


@pytest.mark.parametrize("held_out", [True, False])
def test_one_that_stays_as_it_was_is_no_new_model(
    retrained: Retrained, capsys: pytest.CaptureFixture[str], held_out: bool
) -> None:
    if not held_out:
        data = read_manifest(retrained.out / "data")
        write_manifest(data.folder, [replace(record, split="train") for record in data.records])
    stayed = replace(retrained, new=retrained.engine.home.bundles_folder / retrained.first.digest)
    # Nor is it one where another is searched with by now, which it would pass against.
    retrained.search_in(retrained.other)
    outcome = stayed.decide(-1000, promote=True)
    assert (outcome.verdict, outcome.bundle, outcome.generation) == ("unchanged", None, None)
    assert (outcome.judgement is not None) == held_out
    assert retrained.searched() == retrained.other.id
    printed = capsys.readouterr().out
    assert "No epoch made the model better" in printed
    assert "there is no new model" in printed
    assert ("images held out" in printed) == held_out
    assert "the new model " not in printed.replace("can judge the new model", "")

"""Comparison of two models on held-out images."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from app.lifecycle.judge import compare_models, describe_held_out
from app.lifecycle.verdict import ModelVerdict
from tests.app.conftest import make_bundle, make_manifest
from training.data.manifest import Manifest, Record, Rejections, Split
from training.models.bundle import BundleInfo, read_bundle


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> BundleInfo:
    return read_bundle(make_bundle(tmp_path_factory.mktemp("judged") / "base", seed=0))


def test_a_model_passes_by_what_it_gains_and_never_if_it_is_the_same(
    base: BundleInfo, tmp_path: Path
) -> None:
    manifest = make_manifest(tmp_path / "data", images=12)
    other = read_bundle(make_bundle(tmp_path / "other", seed=1))
    same = read_bundle(Path(shutil.copytree(base.folder, tmp_path / "same")))

    def judged(new: BundleInfo, gain: float) -> ModelVerdict:
        found = compare_models(base, new, manifest, gain=gain, label_template="a {labels}", device="cpu")
        assert found is not None
        return found

    measured = judged(other, -1000)
    risen = measured.after - measured.before
    assert judged(other, risen - 0.1).passed
    assert not judged(other, risen + 0.1).passed
    unchanged = judged(same, -1000)
    assert unchanged.before == unchanged.after == measured.before
    assert not unchanged.passed


def test_images_of_one_text_or_of_none_judge_no_model(base: BundleInfo, tmp_path: Path) -> None:
    """Every model finds each of them: rsum would be 600 before and after."""
    manifest = make_manifest(tmp_path / "data", images=12)
    held_out = [record for record in manifest.records if record.split == "test"]
    other = read_bundle(make_bundle(tmp_path / "other", seed=1))
    one: list[tuple[str, ...]] = [("a dog",)]
    for texts, told in ((one, False), (one * 12, False), ([*one, ("two dogs",)], True)):
        records = tuple(
            replace(record, texts=said, labels=())
            for record, said in zip(held_out, [*texts, *[()] * len(held_out)], strict=False)
        )
        found = compare_models(
            base, other, replace(manifest, records=records), gain=0, label_template="{labels}", device="cpu"
        )
        assert (found is not None) == told
        if found is not None:
            assert (found.metric, found.images) == ("rsum", 2)


def records_of(split: Split, *texts: tuple[str, ...], labels: int = 0) -> list[Record]:
    return [
        Record(id=f"{split}{n}", image="a.png", split=split, texts=said, labels=("x",) if n < labels else ())
        for n, said in enumerate(texts)
    ]


def test_what_is_held_out_is_said_before_the_training(tmp_path: Path) -> None:
    def said(*records: Record) -> str:
        return describe_held_out(Manifest(tmp_path, records, Rejections(0)))

    both = (*records_of("val", ("a",), ("b",)), *records_of("test", ("a",), ("b",), ("c",), ()))
    assert said(*both) == (
        "Held out: 2 images with texts choose the epoch (val), and 3 images with texts judge the new model "
        "(test)."
    )
    for none in ((), records_of("test", ("a",), ("a",))):
        assert "none choose the epoch, and none can judge the new model" in said(*none)
    assert "and 2 images with texts judge the new model (val)" in said(*records_of("val", ("a",), ("b",)))
    assert "and 2 with labels judge" in said(*records_of("test", (), (), (), labels=2))

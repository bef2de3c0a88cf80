"""What a manifest gives to train, to choose and to test on, and shares in which each label has its part."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from training.classification.data import LabelledSplits, labelled_splits, stratified_share
from training.classification.recipe import ImageDataConfig
from training.common.errors import DataError
from training.common.manifest import Manifest, Record, Split
from training.common.rejections import Rejections


def manifest(counts: dict[Split, int], *, labelled: bool = True) -> Manifest:
    """Patients with three images each; every second image has a finding, every fifth another."""

    def labels(number: int) -> tuple[str, ...]:
        return tuple(name for name, each in (("edema", 2), ("mass", 5)) if labelled and number % each == 0)

    records = tuple(
        Record(
            f"{split}{number}",
            f"{number}.png",
            split,
            labels=labels(number),
            group=f"{split}-{number // 3}",
        )
        for split, count in counts.items()
        for number in range(count)
    )
    return Manifest(Path("somewhere"), records, Rejections(len(records)))


WHOLE = manifest({"train": 300, "val": 20, "test": 30})


def split(whole: Manifest = WHOLE, **config: Any) -> LabelledSplits:
    return labelled_splits(whole, ImageDataConfig.model_validate(config))


def ids(part: Manifest) -> set[str]:
    return {record.id for record in part.records}


def test_splits_are_the_manifest_s() -> None:
    splits = split()
    assert splits.labels == ("edema", "mass")
    assert splits.train.records == WHOLE.split("train").records
    assert splits.val.records == WHOLE.split("val").records
    assert splits.test.records == WHOLE.split("test").records
    assert split(labels=["mass"]).labels == ("mass",)


def test_whole_patients_are_held_out_and_a_share_is_of_the_rest() -> None:
    whole = split(validation_images=50, test_split="val")
    assert whole.test.records == WHOLE.split("val").records
    assert 48 <= len(whole.val.records) <= 50
    assert ids(whole.train) | ids(whole.val) == ids(WHOLE.split("train"))
    groups = [{record.group for record in part.records} for part in (whole.train, whole.val)]
    assert not groups[0] & groups[1]
    assert ids(split(validation_images=50, test_split="val", share_seed=1).val) != ids(whole.val)
    alone = replace(WHOLE, records=tuple(replace(record, group=None) for record in WHOLE.records))
    assert len(split(alone, validation_images=50).val.records) == 50
    part = split(validation_images=50, share=0.1)
    assert ids(part.val) == ids(whole.val)
    assert ids(part.train) < ids(whole.train)
    assert len(part.train.records) == pytest.approx(25, abs=2)


@pytest.mark.parametrize(
    ("counts", "config", "message"),
    [
        ({"train": 9, "test": 9}, {}, "The validation images"),
        ({"train": 9, "val": 9}, {}, "The test images"),
        ({"train": 9, "val": 9, "test": 1}, {"labels": ["mass"]}, "The test images"),
        ({"train": 9, "val": 9, "test": 9}, {"validation_images": 90}, "left to train on"),
        (
            {"train": 9, "val": 9, "test": 9},
            {"labels": ["edema", "cyst"]},
            r"has the label 'cyst': choose data\.labels among edema, mass",
        ),
    ],
)
def test_what_cannot_be_measured_is_said_first(
    counts: dict[Split, int], config: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        split(manifest(counts), **config)
    with pytest.raises(DataError, match=r"No training image .* has labels"):
        split(manifest(counts, labelled=False), **config)


def test_the_fingerprint_knows_images_labels_and_what_chooses() -> None:
    first, *others = WHOLE.records
    prints = {
        split().fingerprint,
        split(labels=["mass"]).fingerprint,
        split(share=0.5).fingerprint,
        split(validation_images=50).fingerprint,
        split(replace(WHOLE, records=tuple(others))).fingerprint,
        split(replace(WHOLE, records=(replace(first, labels=("mass",)), *others))).fingerprint,
    }
    assert len(prints) == 6
    assert split().fingerprint in prints


def drawn_labels(count: int, rates: tuple[float, ...], seed: int = 0) -> NDArray[np.bool_]:
    labels: NDArray[np.bool_] = np.random.default_rng(seed).random((count, len(rates))) < np.array(rates)
    return labels


@pytest.mark.parametrize(("share", "seed"), [(0.1, 0), (0.5, 1)])
def test_each_label_has_its_share(share: float, seed: int) -> None:
    positive = drawn_labels(2000, (0.5, 0.2, 0.05, 0.01))
    rows = stratified_share(positive, share, seed)
    assert rows == sorted(set(rows))
    assert len(rows) == pytest.approx(share * 2000, abs=2)
    for label, expected in enumerate(share * positive.sum(axis=0)):
        assert positive[rows, label].sum() == pytest.approx(expected, abs=1.01)
    assert rows == stratified_share(positive, share, seed) != stratified_share(positive, share, seed + 1)
    assert stratified_share(positive, 1.0, 0) == list(range(2000))


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 12), st.integers(0, 3), st.floats(0.001, 1.0), st.integers(0, 3))
def test_there_is_always_an_image(count: int, labels: int, share: float, seed: int) -> None:
    rows = stratified_share(drawn_labels(count, (0.4,) * labels, seed), share, seed)
    assert rows
    assert set(rows) <= set(range(count))

"""What a manifest gives to train, to choose and to test on."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from training.classification.images.config import ImageDataConfig
from training.classification.images.training_images import LabelledSplits, labelled_splits
from training.common.errors import DataError
from training.common.manifest import Manifest, Record, Split
from training.common.rejections import Rejections
from training.data.labels import positives


def manifest(counts: dict[Split, int], *, labelled: bool = True) -> Manifest:
    """Patients with three images each; every second image has a finding, every fifth another."""
    records = [
        Record(
            f"{split}{number}",
            f"{number}.png",
            split,
            labels=tuple(
                name for name, each in (("edema", 2), ("mass", 5)) if labelled and number % each == 0
            ),
            group=f"{split}-{number // 3}",
        )
        for split, count in counts.items()
        for number in range(count)
    ]
    return Manifest(Path("somewhere"), tuple(records), Rejections(len(records)))


WHOLE = manifest({"train": 300, "val": 20, "test": 30})


def split(whole: Manifest = WHOLE, **settings: Any) -> LabelledSplits:
    return labelled_splits(whole, ImageDataConfig.model_validate(settings))


def ids(part: Manifest) -> set[str]:
    return {record.id for record in part.records}


def test_splits_are_the_manifest_s() -> None:
    found = split()
    assert found.labels == ("edema", "mass")
    assert found.train.records == WHOLE.split("train").records
    assert found.val.records == WHOLE.split("val").records
    assert found.test.records == WHOLE.split("test").records


def test_whole_patients_are_held_out_and_the_val_split_tests() -> None:
    found = split(validation_images=50, test_split="val")
    assert found.test.records == WHOLE.split("val").records
    assert 48 <= len(found.val.records) <= 50
    assert ids(found.train) | ids(found.val) == ids(WHOLE.split("train"))
    groups = [{record.group for record in part.records} for part in (found.train, found.val)]
    assert not groups[0] & groups[1]
    other = split(validation_images=50, test_split="val", share_seed=1)
    assert ids(other.val) != ids(found.val)


def test_a_share_is_of_what_is_not_held_out() -> None:
    found = split(share=0.1, validation_images=60)
    rest = split(validation_images=60)
    assert ids(found.val) == ids(rest.val)
    assert ids(found.train) < ids(rest.train)
    assert len(found.train.records) == pytest.approx(24, abs=2)


def test_labels_may_be_chosen() -> None:
    assert split(labels=["mass"]).labels == ("mass",)
    with pytest.raises(DataError, match=r"has the label 'cyst': choose data\.labels among edema, mass"):
        split(labels=["edema", "cyst"])


def test_a_record_has_the_labels_that_it_lists() -> None:
    records = [Record("a", "a", "train", labels=("mass",)), Record("b", "b", "train")]
    assert positives(records, ("edema", "mass")).tolist() == [[False, True], [False, False]]
    assert positives([], ("edema", "mass")).shape == (0, 2)


@pytest.mark.parametrize(
    ("whole", "settings", "message"),
    [
        (manifest({"train": 9, "val": 9, "test": 9}, labelled=False), {}, "No training image .* has labels"),
        (manifest({"train": 9, "test": 9}), {}, "The validation images"),
        (manifest({"train": 9, "val": 9}), {}, "The test images"),
        (manifest({"train": 9, "val": 9, "test": 1}), {"labels": ["mass"]}, "The test images"),
        (manifest({"train": 9, "val": 9, "test": 9}), {"validation_images": 90}, "left to train on"),
    ],
)
def test_what_cannot_be_measured_is_said_first(
    whole: Manifest, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        split(whole, **settings)


def test_the_fingerprint_knows_images_labels_and_what_chooses() -> None:
    prints = {
        split().fingerprint,
        split(labels=["mass"]).fingerprint,
        split(share=0.5).fingerprint,
        split(validation_images=50).fingerprint,
        split(replace(WHOLE, records=WHOLE.records[1:])).fingerprint,
        split(
            replace(WHOLE, records=(replace(WHOLE.records[0], labels=("mass",)), *WHOLE.records[1:]))
        ).fingerprint,
    }
    assert len(prints) == 6
    assert split().fingerprint in prints

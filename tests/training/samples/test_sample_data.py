"""The sample data."""

import hashlib
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from training.common.errors import DataError
from training.common.manifest import Manifest, read_manifest
from training.imaging.images import decode_image
from training.samples import write_sample_data
from training.samples.scenes.drawing import draw_scene
from training.samples.scenes.factors import TEXTURES, draw_scene_factors

# A word that every sentence about a finding has, and no other sentence of a report that lacks it.
WORDS = {
    "Cardiomegaly": ("enlarged", "cardiomegaly"),
    "Pleural Effusion": ("effusion", "pleural fluid"),
    "Pneumothorax": ("pneumothorax",),
    "Lung Nodule": ("nodule",),
    "Consolidation": ("consolidat", "lobe"),
    "Edema": ("edema",),
    "Atelectasis": ("atelectasis",),
    "Pacemaker": ("pacemaker",),
    "Central Line": ("central",),
}


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("sample") / "data"
    write_sample_data(out, images=120, seed=3, size=48)
    return out


@pytest.fixture
def radiographs(sample: Path) -> Manifest:
    return read_manifest(sample / "radiographs", max_rejected=0.0)


@pytest.fixture
def scenes(sample: Path) -> Manifest:
    return read_manifest(sample / "scenes", max_rejected=0.0)


def digests(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files
    }


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    write_sample_data(tmp_path / "a", images=6, seed=5, size=32)
    write_sample_data(tmp_path / "b", images=6, seed=5, size=32)
    write_sample_data(tmp_path / "c", images=6, seed=6, size=32)
    first, again, other = (digests(tmp_path / name) for name in "abc")
    assert first == again
    assert first.keys() == other.keys()
    same = [name for name in first if first[name] == other[name]]
    assert same == ["radiographs/README.md", "scenes/README.md"]


def test_a_larger_set_begins_with_the_smaller_one(sample: Path, tmp_path: Path) -> None:
    write_sample_data(tmp_path / "few", images=5, seed=3, size=48)
    few, many = digests(tmp_path / "few"), digests(sample)
    assert all(many[name] == digest for name, digest in few.items() if name.endswith(".jpg"))


def test_there_are_as_many_images_as_asked_for(radiographs: Manifest, scenes: Manifest) -> None:
    for manifest in (radiographs, scenes):
        assert len(manifest.records) == 120
        assert all(len(manifest.split(split).records) >= 6 for split in ("train", "val", "test"))
        image = decode_image(manifest.image_path(manifest.records[0]))
        assert image.size == (48, 48)


def test_no_patient_is_in_two_splits(radiographs: Manifest) -> None:
    splits: dict[str | None, set[str | None]] = {}
    for record in radiographs.records:
        splits.setdefault(record.group, set()).add(record.split)
    assert None not in splits
    assert {len(found) for found in splits.values()} == {1}
    assert len(splits) < 120


def test_labels_agree_with_the_sentences(radiographs: Manifest) -> None:
    seen: set[str] = set()
    for record in radiographs.records:
        stated = " ".join(record.texts).lower()
        for finding, words in WORDS.items():
            said = any(word in stated for word in words)
            if record.labels != ("No Finding",):
                assert said == (finding in record.labels), (finding, record)
        seen.update(record.labels)
        assert record.report is not None
        assert all(text in record.report for text in record.texts[:-1])
        assert str(record.metadata["indication"]) in record.report
    assert seen == {*WORDS, "No Finding"}


def test_sides_agree_with_the_sentences(radiographs: Manifest) -> None:
    checked = 0
    for record in radiographs.records:
        sides = record.metadata.get("sides", ())
        if record.labels in (("Pleural Effusion",), ("Pneumothorax",), ("Lung Nodule",), ("Consolidation",)):
            assert isinstance(sides, tuple)
            assert len(sides) == 1
            assert all(str(sides[0]) in text.lower() for text in record.texts)
            checked += 1
    assert checked > 5


def test_every_caption_states_the_thing_and_some_the_occasion(scenes: Manifest) -> None:
    occasions = 0
    for record in scenes.records:
        assert len(set(record.texts)) == 5
        for text in record.texts:
            assert str(record.metadata["colour"]) in text
            assert text[0].isupper()
        if "other" in record.metadata:
            assert all(str(record.metadata["other_colour"]) in text for text in record.texts)
        occasions += sum(str(record.metadata["occasion"]) in text for text in record.texts)
        assert not any(str(record.metadata["time"]) in text for text in record.texts)
    assert 60 < occasions <= 120


def test_shared_and_unique_factors_vary(radiographs: Manifest, scenes: Manifest) -> None:
    for manifest, names in (
        (radiographs, ("view", "sides", "severity", "sex")),
        (radiographs, ("exposure", "marker", "tilt", "age", "indication", "comparison", "year")),
        (scenes, ("place", "thing", "colour", "count", "other", "other_colour", "relation")),
        (scenes, ("time", "blur", "texture", "occasion", "author")),
    ):
        for name in names:
            values = {record.metadata[name] for record in manifest.records if name in record.metadata}
            assert len(values) >= 2, name


def test_the_readme_names_every_factor(sample: Path) -> None:
    for name in ("radiographs", "scenes"):
        about = (sample / name / "README.md").read_text()
        records = read_manifest(sample / name, max_rejected=0.0).records
        assert all(f"`{key}`" in about for record in records for key in record.metadata)


def test_severity_is_stated_in_the_report(radiographs: Manifest) -> None:
    words = {
        "small": ("small", "mild", "slight"),
        "moderate": ("moderate", "medium-sized"),
        "large": ("large", "marked", "massive", "severe"),
    }
    checked = 0
    for record in radiographs.records:
        if "severity" in record.metadata and record.metadata["view"] != "LATERAL":
            said = " ".join(record.texts).lower()
            assert any(word in said for word in words[str(record.metadata["severity"])]), record
            checked += 1
    assert checked > 20


def test_every_caption_ends_in_the_way_of_its_author(scenes: Manifest) -> None:
    endings = {"reporter": r"\w\.", "admirer": r"\w!", "dreamer": r"\w \.\.\.", "poet": r"\w"}
    assert {record.metadata["author"] for record in scenes.records} == set(endings)
    for record in scenes.records:
        ending = endings[str(record.metadata["author"])]
        assert all(re.fullmatch(rf"[\w ,-]+{ending}", text) for text in record.texts), record.texts


def test_texture_is_in_the_image_alone_and_mild(scenes: Manifest) -> None:
    rng = np.random.default_rng(0)
    scene = draw_scene_factors(rng, rng)
    drawn = {
        texture: np.asarray(draw_scene(replace(scene, texture=texture), np.random.default_rng(1), 128))
        for texture in TEXTURES
    }
    plain = drawn.pop("smooth").astype(np.float64)
    shadows = {texture: plain - image for texture, image in drawn.items()}
    assert all(shadow.min() >= 0 and 3 <= shadow.max() <= 5 for shadow in shadows.values())
    # Ribs run across the image: columns are alike, rows are not.
    ribs = shadows["ribbed"].mean(axis=2)
    assert ribs.mean(axis=1).std() > 5 * ribs.mean(axis=0).std()
    for record in scenes.records:
        assert not any(str(record.metadata["texture"]) in text for text in record.texts)


def test_unique_factors_are_independent_of_what_is_shared() -> None:
    rng = np.random.default_rng(0)
    scene = draw_scene_factors(np.random.default_rng(5), np.random.default_rng(1))
    others = [draw_scene_factors(np.random.default_rng(5), rng) for _ in range(20)]
    assert {replace(other, texture=scene.texture, author=scene.author) for other in others} == {scene}
    assert {other.texture for other in others} == set(TEXTURES)


def test_exposure_shows_in_the_image(radiographs: Manifest) -> None:
    brightness: dict[str, list[float]] = {}
    for record in radiographs.records:
        if record.metadata["view"] == "PA":
            image = decode_image(radiographs.image_path(record))
            brightness.setdefault(str(record.metadata["exposure"]), []).append(
                float(np.asarray(image).mean())
            )
    low, normal, high = (np.mean(brightness[name]) for name in ("low", "normal", "high"))
    assert low > normal + 5
    assert normal > high + 5


def test_an_effusion_whitens_its_own_side(radiographs: Manifest) -> None:
    differences = []
    for record in radiographs.records:
        sides = record.metadata.get("sides")
        if record.labels == ("Pleural Effusion",) and record.metadata["view"] != "LATERAL":
            grey = np.asarray(decode_image(radiographs.image_path(record)))[..., 0].astype(float)
            base = grey[round(0.66 * 48) : round(0.78 * 48)]
            right, left = base[:, 7:13].mean(), base[:, -13:-7].mean()
            differences.append(right - left if sides == ("right",) else left - right)
    assert len(differences) >= 3
    assert min(differences) > 0


def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    with pytest.raises(DataError, match="is not empty; give a new folder, or delete it first"):
        write_sample_data(tmp_path, images=1)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_stopped_run_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("training.samples.write_scenes", stop)
    with pytest.raises(KeyboardInterrupt):
        write_sample_data(tmp_path / "out", images=2, size=32)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("wrong", [{"images": 0}, {"size": 16}, {"size": 5000}, {"seed": -1}])
def test_numbers_out_of_range(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="at least one image, a size from 32 to 2048 and a seed of 0 or more"):
        write_sample_data(tmp_path / "out", **wrong)

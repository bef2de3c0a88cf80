"""The sample data: bytes by seed, factors in images, texts, sounds and DICOM files."""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pydicom
import pytest
import soundfile
from PIL import Image

from training.clinical.dicom.objects import Kind, kind_of
from training.common.errors import DataError
from training.common.manifest import Manifest, MetadataValue, Record, read_manifest
from training.data.audio import decode_audio
from training.imaging.images import decode_image
from training.samples import write_sample_data
from training.samples.scene_drawing import draw_scene
from training.samples.scenes import COLOURS, GROUND_THINGS, PLACES, SKY_THINGS, TEXTURES, draw_scene_factors
from training.samples.sounds import INSTRUMENTS, RATE, RHYTHMS, draw_sound, find_pitch

Sound = npt.NDArray[np.float64]
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
SEVERITIES = {
    "small": ("small", "mild", "slight"),
    "moderate": ("moderate", "medium-sized"),
    "large": ("large", "marked", "massive", "severe"),
}
STEP = RATE // 8
# All that the seed draws, 8 x 8 pixels each, and the digests of the manifests.
DRAWINGS = Path(__file__).with_name("drawings.png")
TEXTS = {
    "radiographs": "060dcd9e1cee5042c2407a3c39da6145ddb9069bf3761c961d10d997b388efbc",
    "scenes": "019fc52709267cd25e2a7155f0a5fd86d61994356e96cc1f0f007915422845ed",
}
# Odd, so that the pixels of DICOM files are padded.
SIZE = 49


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("sample") / "data"
    write_sample_data(out, images=120, seed=3, size=SIZE, audio=True, dicom=True)
    return out


@pytest.fixture
def radiographs(sample: Path) -> Manifest:
    return read_manifest(sample / "radiographs", max_rejected=0.0)


@pytest.fixture
def scenes(sample: Path) -> Manifest:
    return read_manifest(sample / "scenes", max_rejected=0.0)


@pytest.fixture
def sounds(scenes: Manifest) -> list[tuple[Record, Sound]]:
    def decoded() -> Iterator[tuple[Record, Sound]]:
        for record in scenes.records[:30]:
            path = scenes.audio_path(record)
            assert path is not None
            yield record, decode_audio(path, RATE).numpy().astype(np.float64)

    return list(decoded())


def digests(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files
    }


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    for name, seed in (("a", 5), ("b", 5), ("c", 6)):
        write_sample_data(tmp_path / name, images=6, seed=seed, size=32, audio=True, dicom=True)
    first, again, other = (digests(tmp_path / name) for name in "abc")
    assert first == again
    assert first.keys() == other.keys()
    same = [name for name in first if first[name] == other[name]]
    assert same == ["radiographs/README.md", "scenes/README.md"]


def test_drawings_and_texts_of_a_seed_stay_what_they_were(tmp_path: Path) -> None:
    """Measured figures rest on them: a change on purpose brings new figures and a new sheet."""
    write_sample_data(tmp_path / "drawn", images=120, seed=3, size=64)
    sheet = Image.new("RGB", (96, 160))
    for number, path in enumerate(sorted(tmp_path.glob("drawn/*/images/*"))):
        with Image.open(path) as picture:
            sheet.paste(picture.convert("RGB").reduce(8), (number % 12 * 8, number // 12 * 8))
    sheet.save(tmp_path / DRAWINGS.name)
    differences = np.abs(np.asarray(sheet, int) - np.asarray(Image.open(DRAWINGS), int))
    # Processors may round a value differently.
    assert differences.max() <= 1, f"{tmp_path / DRAWINGS.name} differs from {DRAWINGS}"
    written = digests(tmp_path / "drawn")
    assert {name: written[f"{name}/manifest.jsonl"] for name in TEXTS} == TEXTS


def test_a_smaller_set_without_sounds_is_the_beginning_of_a_larger_one(
    sample: Path, scenes: Manifest, tmp_path: Path
) -> None:
    write_sample_data(tmp_path / "few", images=5, seed=3, size=SIZE)
    few, many = digests(tmp_path / "few"), digests(sample)
    assert {name.split("/")[1] for name in few} == {"images", "manifest.jsonl", "README.md"}
    assert all(many[name] == digest for name, digest in few.items() if name.endswith(".jpg"))
    silent = read_manifest(tmp_path / "few" / "scenes").records
    for record, plain in zip(scenes.records[:5], silent, strict=True):
        metadata = {name: value for name, value in record.metadata.items() if name != "instrument"}
        assert replace(record, audio=None, metadata=metadata) == plain


def test_images_are_as_many_as_asked_for_and_no_patient_is_in_two_splits(
    radiographs: Manifest, scenes: Manifest
) -> None:
    for manifest in (radiographs, scenes):
        assert len(manifest.records) == 120
        assert all(len(manifest.split(split).records) >= 6 for split in ("train", "val", "test"))
        assert decode_image(manifest.image_path(manifest.records[0])).size == (SIZE, SIZE)
    splits = {(record.group, record.split) for record in radiographs.records}
    patients = {record.group for record in radiographs.records}
    assert len(splits) == len(patients) < 120
    assert None not in patients


def test_labels_sides_and_severity_agree_with_the_sentences(radiographs: Manifest) -> None:
    seen: set[str] = set()
    sided = graded = 0
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
        if record.labels in (("Pleural Effusion",), ("Pneumothorax",), ("Lung Nodule",), ("Consolidation",)):
            side = "left" if record.metadata["sides"] == ("left",) else "right"
            assert record.metadata["sides"] == (side,)
            assert all(side in text.lower() for text in record.texts)
            sided += 1
        if "severity" in record.metadata and record.metadata["view"] != "LATERAL":
            assert any(word in stated for word in SEVERITIES[str(record.metadata["severity"])]), record
            graded += 1
    assert seen == {*WORDS, "No Finding"}
    assert sided > 5
    assert graded > 20


def test_every_caption_states_the_thing_ends_as_its_author_ends_and_some_state_the_occasion(
    scenes: Manifest,
) -> None:
    endings = {"reporter": r"\w\.", "admirer": r"\w!", "dreamer": r"\w \.\.\.", "poet": r"\w"}
    assert {record.metadata["author"] for record in scenes.records} == set(endings)
    occasions = 0
    for record in scenes.records:
        assert len(set(record.texts)) == 5
        known = {name: str(value) for name, value in record.metadata.items()}
        for text in record.texts:
            assert known["colour"] in text
            assert known.get("other_colour", "") in text
            assert text[0].isupper()
            assert known["time"] not in text
            assert known["texture"] not in text
            assert re.fullmatch(rf"[\w ,-]+{endings[known['author']]}", text)
        occasions += sum(known["occasion"] in text for text in record.texts)
    assert 60 < occasions <= 120


def test_factors_vary_and_the_readme_names_them(radiographs: Manifest, scenes: Manifest) -> None:
    film = "view sides severity sex exposure marker tilt age indication comparison year"
    scene = (
        "place thing colour count other other_colour relation time blur texture occasion author instrument"
    )
    for manifest, names in ((radiographs, film.split()), (scenes, scene.split())):
        about = (manifest.folder / "README.md").read_text()
        assert {name for record in manifest.records for name in record.metadata} == set(names)
        for name in names:
            assert f"`{name}`" in about
            assert len({record.metadata.get(name) for record in manifest.records} - {None}) >= 2, name


def test_texture_is_in_the_image_alone_and_mild() -> None:
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


def test_unique_factors_are_independent_of_what_is_shared() -> None:
    rng = np.random.default_rng(0)
    scene = draw_scene_factors(np.random.default_rng(5), np.random.default_rng(1))
    others = [draw_scene_factors(np.random.default_rng(5), rng) for _ in range(20)]
    assert {replace(other, texture=scene.texture, author=scene.author) for other in others} == {scene}
    assert {other.texture for other in others} == set(TEXTURES)


def test_exposure_and_effusion_show_in_the_image(radiographs: Manifest) -> None:
    brightness: dict[str, list[float]] = {"low": [], "normal": [], "high": []}
    whiter = []
    for record in radiographs.records:
        grey = np.asarray(decode_image(radiographs.image_path(record)))[..., 0].astype(float)
        if record.metadata["view"] == "PA":
            brightness[str(record.metadata["exposure"])].append(float(grey.mean()))
        if record.labels == ("Pleural Effusion",) and record.metadata["view"] != "LATERAL":
            base = grey[round(0.66 * SIZE) : round(0.78 * SIZE)]
            right, left = base[:, 7:13].mean(), base[:, -13:-7].mean()
            whiter.append(right - left if record.metadata["sides"] == ("right",) else left - right)
    low, normal, high = map(np.mean, brightness.values())
    assert low > normal + 5
    assert normal > high + 5
    assert len(whiter) >= 3
    assert min(whiter) > 0


def test_every_kind_of_thing_and_colour_has_its_own_sound() -> None:
    kinds = {kind for things in GROUND_THINGS.values() for kind in things} | set(SKY_THINGS)
    assert kinds == set(RHYTHMS)
    assert len(set(RHYTHMS.values())) == len(RHYTHMS)
    assert all(len(rhythm) == 8 and rhythm[0] == "x" for rhythm in RHYTHMS.values())
    pitches = [find_pitch(colour) for colour in COLOURS]
    assert pitches == sorted(set(pitches))
    assert [pitches[0], pitches[8]] == pytest.approx([220, 880])


def test_a_scene_sounds_as_its_thing_and_its_colour(
    scenes: Manifest, sounds: list[tuple[Record, Sound]]
) -> None:
    assert {record.metadata["instrument"] for record in scenes.records} == set(INSTRUMENTS)
    for record, sound in sounds:
        path = scenes.folder / str(record.audio)
        header = soundfile.info(path)
        assert (header.samplerate, header.channels, header.frames) == (RATE, 1, RATE)
        assert path.stat().st_size < 17_000
        # Loudness of each eighth.
        loud = np.abs(sound.reshape(8, STEP)).max(axis=1)
        heard = "".join("x" if level > 0.2 else "." for level in loud)
        assert heard == RHYTHMS[str(record.metadata["thing"])]
        spectrum = np.abs(np.fft.rfft(sound[:STEP] * np.hanning(STEP), 8 * STEP))
        # The lowest peak of the chord is its root.
        peaks = (np.arange(len(spectrum)) * RATE / (8 * STEP))[spectrum > 0.4 * spectrum.max()]
        assert peaks.min() == pytest.approx(find_pitch(str(record.metadata["colour"])), abs=12)


def test_the_noise_behind_is_that_of_the_place() -> None:
    for number, place in enumerate(PLACES):
        factors: dict[str, MetadataValue] = {"colour": "red", "thing": "umbrella", "count": 1, "place": place}
        record = Record("a", "a.jpg", "train", metadata=factors)
        quiet = draw_sound(record, "flute", np.random.default_rng(0))[4 * STEP :]
        power = np.abs(np.fft.rfft(quiet)) ** 2
        bands = [part.sum() for part in np.array_split(power, len(PLACES))]
        assert int(np.argmax(bands)) == number
        assert max(bands) > 0.9 * sum(bands)


def test_instruments_sound_different(scenes: Manifest) -> None:
    sounds = [draw_sound(scenes.records[0], name, np.random.default_rng(0)) for name in INSTRUMENTS]
    assert all(np.abs(a - b).max() > 0.05 for a, b in pairwise(sounds))
    assert all(np.abs(sound).max() <= 1 for sound in sounds)


def test_each_radiograph_is_a_dicom_study_with_its_pixels_and_factors(
    sample: Path, radiographs: Manifest
) -> None:
    films = {file.stem: pydicom.dcmread(file) for file in sorted((sample / "dicom").iterdir())}
    assert list(films) == [record.id for record in radiographs.records]
    # An import takes them all.
    assert {kind_of(film) for film in films.values()} == {Kind()}
    for record in radiographs.records:
        film, known = films[record.id], record.metadata
        picture = decode_image(radiographs.image_path(record))
        assert np.array_equal(film.pixel_array, np.asarray(picture.convert("L")))
        view = {"LATERAL": "LL"}.get(str(known["view"]), known["view"])
        assert (film.Modality, film.ViewPosition, film.PatientID) == ("DX", view, record.group)
        assert (film.PatientSex, int(film.PatientAge[:3])) == (known["sex"], known["age"])
        assert int(film.StudyDate[:4]) == known["year"]
    for keyword in ("SOPInstanceUID", "SeriesInstanceUID", "StudyInstanceUID", "AccessionNumber"):
        assert len({film[keyword].value for film in films.values()}) == 120


def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    with pytest.raises(DataError, match="is not empty; give a new folder, or delete it first"):
        write_sample_data(tmp_path, images=1)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_stopped_run_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("training.samples.draw_scene", stop)
    with pytest.raises(KeyboardInterrupt):
        write_sample_data(tmp_path / "out", images=2, size=32)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("wrong", [{"images": 0}, {"size": 16}, {"size": 5000}, {"seed": -1}])
def test_numbers_out_of_range(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="at least one image, a size from 32 to 2048 and a seed of 0 or more"):
        write_sample_data(tmp_path / "out", **wrong)

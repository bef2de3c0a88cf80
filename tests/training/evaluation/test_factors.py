from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from training.common.manifest import Record, Rejections
from training.evaluation.embedding import EmbeddedManifest, EmbeddedSounds
from training.evaluation.factors import LinearProbe, label_factors, metadata_factors, read_factors

Vectors = NDArray[np.float32]


def records(count: int) -> list[Record]:
    """`shared` has four values, `seen` and `said` three, `noise` two; the first label goes with `shared`."""
    rng = np.random.default_rng(0)
    return [
        Record(
            id=f"r{row}",
            image="",
            split="test",
            texts=("one", "two"),
            labels=("first",) if shared < 2 else ("second",),
            metadata={
                "shared": f"s{shared}",
                "seen": int(rng.integers(3)),
                "said": f"t{rng.integers(3)}",
                "noise": bool(rng.random() < 0.5),
                "number": float(rng.normal()),
                "name": f"r{row}",
                "constant": "same",
            },
        )
        for row, shared in enumerate(rng.integers(4, size=count).tolist())
    ]


def vectors_of(known: Sequence[Record], *names: str, seed: int) -> Vectors:
    """Noise of length one, with a direction added for each value of these factors."""
    rng = np.random.default_rng(seed)
    vectors = 0.1 * rng.normal(size=(len(known), 16))
    for place, name in enumerate(names):
        values = sorted({str(record.metadata[name]) for record in known})
        codes = [values.index(str(record.metadata[name])) for record in known]
        vectors += np.eye(16)[np.array(codes) + 4 * place]
    unit: Vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    return unit


@pytest.fixture
def embedded() -> EmbeddedManifest:
    known = records(200)
    texts = vectors_of(known, "shared", "said", seed=2)
    return EmbeddedManifest(
        records=tuple(known),
        image_vectors=vectors_of(known, "shared", "seen", seed=1),
        texts=("one", "two") * 200,
        text_vectors=texts.repeat(2, axis=0),
        text_owner=np.arange(200).repeat(2),
        skipped=Rejections(0),
        truncated=0,
    )


def test_each_factor_is_read_where_it_is(embedded: EmbeddedManifest) -> None:
    actual = {reading.name: reading for reading in read_factors(embedded)}
    assert list(actual) == ["noise", "number", "said", "seen", "shared", "labels"]
    image = {name: reading.image for name, reading in actual.items()}
    text = {name: reading.text for name, reading in actual.items()}
    assert image["shared"] == text["shared"] == image["seen"] == text["said"] == 100
    assert image["labels"] == text["labels"] == 100
    for reading in (actual["noise"], actual["number"]):
        assert reading.image == pytest.approx(reading.chance, abs=12)
        assert reading.text == pytest.approx(reading.chance, abs=12)
    assert image["said"] == pytest.approx(100 / 3, abs=12)
    assert text["seen"] == pytest.approx(100 / 3, abs=12)
    assert {name: (reading.values, reading.chance) for name, reading in actual.items()} == {
        "noise": (2, 50),
        "number": (3, 100 / 3),
        "said": (3, 100 / 3),
        "seen": (3, 100 / 3),
        "shared": (4, 25),
        "labels": (2, 50),
    }
    assert all(reading.records == 200 for reading in actual.values())


@pytest.mark.slow
def test_the_mean_of_an_images_texts_is_read(embedded: EmbeddedManifest) -> None:
    # One text of each image says something, the other says the same for all.
    vectors = embedded.text_vectors.copy()
    vectors[1::2] = vectors[1]
    actual = {reading.name: reading.text for reading in read_factors(replace(embedded, text_vectors=vectors))}
    assert actual["said"] == 100


@pytest.mark.slow
def test_images_without_texts_take_part_by_their_image(embedded: EmbeddedManifest) -> None:
    kept = embedded.text_owner >= 60
    partly = replace(
        embedded,
        texts=tuple(text for text, keep in zip(embedded.texts, kept, strict=True) if keep),
        text_vectors=embedded.text_vectors[kept],
        text_owner=embedded.text_owner[kept],
    )
    actual = {reading.name: reading for reading in read_factors(partly)}
    assert actual["shared"].image == actual["shared"].text == 100
    none = replace(
        embedded, texts=(), text_vectors=embedded.text_vectors[:0], text_owner=np.zeros(0, np.int64)
    )
    assert {reading.text for reading in read_factors(none)} == {None}


def test_many_records_are_sampled(embedded: EmbeddedManifest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training.evaluation.factors._MAX_RECORDS", 120)
    actual = {reading.name: reading for reading in read_factors(embedded)}
    assert actual["shared"].records == 120
    assert actual["shared"].image == actual["shared"].text == 100


def test_which_metadata_are_factors() -> None:
    known = [
        Record(
            id=f"r{row}",
            image="",
            split="test",
            metadata={
                "few": row % 3,
                "many": float(row),
                "rare": "odd" if row == 7 else f"v{row % 2}",
                "list": ("left",) if row % 2 else ("left", "right"),
                "name": f"name {row}",
                "half": f"pair {row // 2}",
                **({"sometimes": "yes" if row % 4 else "no"} if row < 40 else {}),
            },
        )
        for row in range(60)
    ]
    actual = {factor.name: factor for factor in metadata_factors(known)}
    assert list(actual) == ["few", "list", "many", "rare", "sometimes"]
    assert actual["few"].codes.tolist() == [row % 3 for row in range(60)]
    assert actual["many"].codes.tolist() == [row // 20 for row in range(60)]
    assert actual["rare"].codes[7] == -1
    assert actual["rare"].values == 2
    assert (actual["sometimes"].codes[40:] == -1).all()
    assert (actual["sometimes"].codes[:40] >= 0).all()


def test_labels_are_known_of_labelled_images_only() -> None:
    known = [
        Record(
            id=f"r{row}", image="", split="test", labels=() if row < 5 else ("a", "b") if row < 15 else ("b",)
        )
        for row in range(30)
    ]
    # Every labelled image has b, so only a can be told apart.
    (factor,) = label_factors(known)
    assert factor.codes.tolist() == [-1] * 5 + [1] * 10 + [0] * 15


def test_nothing_to_read(embedded: EmbeddedManifest) -> None:
    bare = tuple(replace(record, metadata={}, labels=()) for record in embedded.records)
    assert read_factors(replace(embedded, records=bare)) == ()


@pytest.mark.slow
def test_sounds_are_read_where_there_are_some(embedded: EmbeddedManifest) -> None:
    assert {reading.audio for reading in read_factors(embedded)} == {None}
    # Every second record has a sound, which tells `said` and nothing that only the image shows.
    owner = np.arange(0, 200, 2)
    sounds = EmbeddedSounds(
        files=tuple(f"{row}.wav" for row in owner),
        vectors=vectors_of(embedded.records, "said", seed=3)[owner],
        owner=owner,
        skipped=Rejections(0),
    )
    actual = {reading.name: reading for reading in read_factors(replace(embedded, sounds=sounds))}
    assert actual["said"].audio == 100
    assert actual["seen"].audio == pytest.approx(100 / 3, abs=15)
    assert actual["labels"].audio == pytest.approx(50, abs=15)
    silent = {reading.name: reading for reading in read_factors(embedded)}
    assert all(
        (actual[name].image, actual[name].text) == (silent[name].image, silent[name].text) for name in actual
    )


Codes = NDArray[np.int64]


def separable(
    items: int, classes: int, *, strength: float, seed: int = 0
) -> tuple[NDArray[np.float64], Codes]:
    """Random vectors of length one with a direction added for each class."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(classes, size=items)
    vectors = rng.normal(size=(items, 24)) + strength * np.eye(classes, 24)[codes]
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True), codes


def accuracy(vectors: NDArray[np.float64], codes: Codes, classes: int) -> float:
    actual = LinearProbe(vectors @ vectors.T, [None] * len(codes)).balanced_accuracy(codes, classes)
    assert actual is not None
    return actual


@pytest.mark.parametrize("classes", [2, 4, 8])
def test_what_is_in_the_vectors_is_read(classes: int) -> None:
    vectors, codes = separable(240, classes, strength=12.0)
    assert accuracy(vectors, codes, classes) > 0.95


def test_a_small_share_of_the_variance_is_enough() -> None:
    rng = np.random.default_rng(0)
    codes = rng.integers(2, size=200)
    vectors = np.concatenate([rng.normal(size=(200, 6)), 0.05 * (2.0 * codes[:, None] - 1)], axis=1)
    assert accuracy(vectors, codes, 2) > 0.95


@pytest.mark.slow
def test_a_rare_class_counts_as_much_as_a_common_one() -> None:
    rng = np.random.default_rng(0)
    codes = (np.arange(400) % 10 == 0).astype(np.int64)
    nothing = rng.normal(size=(400, 8))
    # Always answering with the common class would be right in nine of ten.
    assert accuracy(nothing, codes, 2) == pytest.approx(0.5, abs=0.1)
    assert accuracy(nothing + 6.0 * codes[:, None], codes, 2) > 0.95


def test_scale_and_place_of_the_vectors_do_not_matter() -> None:
    vectors, codes = separable(120, 3, strength=2.0)
    expected = accuracy(vectors, codes, 3)
    assert accuracy(100.0 * vectors, codes, 3) == expected
    assert accuracy(vectors + 3.0, codes, 3) == pytest.approx(expected, abs=0.02)
    assert accuracy(np.ones((120, 4)), codes, 3) == pytest.approx(1 / 3, abs=0.15)


def test_no_group_is_both_fitted_to_and_held_out() -> None:
    # Each group of three has its own direction and one class: only memory of the group could tell it.
    rng = np.random.default_rng(0)
    vectors = np.repeat(np.eye(60), 3, axis=0) + 0.01 * rng.normal(size=(180, 60))
    codes = np.repeat(rng.integers(2, size=60), 3)
    kernel = vectors @ vectors.T
    grouped = LinearProbe(kernel, [f"g{row // 3}" for row in range(180)]).balanced_accuracy(codes, 2)
    alone = LinearProbe(kernel, [None] * 180).balanced_accuracy(codes, 2)
    assert alone is not None
    assert grouped is not None
    assert alone > 0.85
    assert grouped < 0.65


def test_unknown_items_change_little() -> None:
    vectors, codes = separable(300, 3, strength=6.0)
    codes[::3] = -1
    assert accuracy(vectors, codes, 3) > 0.9


def test_too_few_items_and_a_class_of_one_group_are_no_measurement() -> None:
    for items in range(1, 4):
        probe = LinearProbe(np.eye(items), [None] * items)
        assert probe.balanced_accuracy(np.arange(items) % 2, 2) is None
    vectors, _ = separable(20, 2, strength=1.0)
    codes = (np.arange(20) < 4).astype(np.int64)
    groups = ["one" if code else None for code in codes]
    assert LinearProbe(vectors @ vectors.T, groups).balanced_accuracy(codes, 2) is None
    assert LinearProbe(vectors @ vectors.T, ["one"] * 20).balanced_accuracy(codes, 2) is None
    assert LinearProbe(np.zeros((0, 0)), []).balanced_accuracy(codes[:0], 2) is None

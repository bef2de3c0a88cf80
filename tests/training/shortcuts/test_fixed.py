import pytest
import torch

from training.shortcuts.config import ShortcutConfig
from training.shortcuts.fixed import FixedShortcuts
from training.shortcuts.shortcuts import with_digits


def fixed(kind: object = "unique") -> FixedShortcuts:
    return FixedShortcuts(ShortcutConfig.model_validate(kind), images=20)


@pytest.fixture(scope="module")
def unique() -> FixedShortcuts:
    return fixed()


def test_all_texts_of_a_row_share_its_id(unique: FixedShortcuts) -> None:
    first, second = unique.mark_texts(["a dog", "a cat"], 3)
    number = int(first.removeprefix("a dog ").replace(" ", ""))
    assert second == with_digits("a cat", number)
    assert unique.mark_texts(["a dog"], 4) == [with_digits("a dog", number + 1)]
    assert unique.mark_texts([], 4) == []


def test_a_row_gets_the_same_digits_in_any_batch(unique: FixedShortcuts) -> None:
    images = torch.zeros(3, 3, 64, 64, dtype=torch.uint8)
    marked = unique.mark_images(images, [2, 7, 11])
    assert torch.equal(unique.mark_images(images[:2], [11, 2]), marked[[2, 0]])
    assert not torch.equal(marked[0], marked[1])
    assert not images.any()


@pytest.mark.slow
def test_one_modality_alone() -> None:
    images = torch.zeros(1, 3, 64, 64, dtype=torch.uint8)
    text = fixed({"kind": "bits", "bits": 2, "modalities": ["text"]})
    assert not text.mark_images(images, [0]).any()
    assert text.mark_texts(["a"], 0) != ["a"]
    image = fixed({"kind": "bits", "bits": 2, "modalities": ["image"]})
    assert image.mark_images(images, [0]).any()
    assert image.mark_texts(["a"], 0) == ["a"]

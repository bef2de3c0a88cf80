"""Synthetic shortcuts on their way through a training step."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from tests.training.models.tiny import tiny_preprocessing
from training.common.record import Record
from training.data.augmentation import Augmentation
from training.data.augmentation_config import AugmentationConfig
from training.data.image_source import ImageSource
from training.data.pairs import PairSampler
from training.models.preprocessing import TokenBatch
from training.shortcuts.config import ShortcutConfig
from training.shortcuts.shortcuts import DigitOverlay, Shortcuts, with_digits
from training.trainer.batches import BatchLoader, PixelPreparation

COUNT, SIZE = 6, 60
RECORDS = [
    Record(id=str(row), image=f"{row}.png", split="train", texts=(f"text {row}",)) for row in range(COUNT)
]


class BlackImages(ImageSource):
    def __init__(self, *broken: int) -> None:
        self.readable = range(COUNT)
        self._broken = broken

    def load(self, rows: NDArray[np.int64]) -> tuple[Tensor, list[int]]:
        kept = [place for place, row in enumerate(rows) if row not in self._broken]
        return torch.zeros(len(kept), 3, SIZE, SIZE, dtype=torch.uint8), kept

    def blank(self, count: int) -> Tensor:
        return torch.zeros(count, 3, SIZE, SIZE, dtype=torch.uint8)

    def close(self) -> None:
        pass


def plan(*modalities: str, in_targets: bool = False) -> Shortcuts:
    settings = {"kind": "unique", "modalities": modalities, "in_targets": in_targets}
    return Shortcuts(ShortcutConfig.model_validate(settings), 3, COUNT)


def loader(shortcuts: Shortcuts | None, *broken: int, targets: list[str] | None = None) -> BatchLoader:
    def note(texts: object) -> Tensor:
        assert targets is not None
        targets.extend(list(texts) if isinstance(texts, list) else [])
        return torch.zeros(COUNT, 1)

    return BatchLoader(
        PairSampler(RECORDS, COUNT, seed=0),
        BlackImages(*broken),
        tiny_preprocessing().text,
        targets=None if targets is None else note,
        training=True,
        shortcuts=shortcuts,
    )


@pytest.mark.parametrize("in_targets", [False, True])
def test_an_image_and_its_text_share_an_id_that_the_target_has_only_on_demand(in_targets: bool) -> None:
    shortcuts, decoded = plan("image", "text", in_targets=in_targets), list[str]()
    batch = loader(shortcuts, targets=decoded).load(2, 0)
    assert batch.items is not None
    rows = batch.items.numpy()
    ids = shortcuts.ids(2, rows)
    written = [with_digits(f"text {row}", number) for row, number in zip(rows, ids.tolist(), strict=True)]
    assert isinstance(batch.inputs.tokens, TokenBatch)
    assert batch.inputs.tokens.input_ids.equal(tiny_preprocessing().text(written).input_ids)
    assert batch.inputs.glyphs is not None
    digits = (batch.inputs.glyphs // 100).tolist()
    assert ["".join(map(str, row)) for row in digits] == [f"{number:06d}" for number in ids]
    assert decoded == (written if in_targets else [f"text {row}" for row in rows])


def test_a_broken_image_takes_its_digits_along() -> None:
    shortcuts = plan("image", "text")
    whole, partly = loader(shortcuts).load(0, 0), loader(shortcuts, 1, 4).load(0, 0)
    kept = partly.inputs.places
    assert len(kept) == COUNT - 2
    assert whole.inputs.glyphs is not None
    assert partly.inputs.glyphs is not None
    assert partly.inputs.glyphs.equal(whole.inputs.glyphs[kept])


@pytest.mark.parametrize(("kind", "shared"), [("unique", True), ("bits:13", False)])
def test_texts_of_an_image_share_a_unique_id_and_draw_their_own_bits(kind: str, shared: bool) -> None:
    texts = [replace(record, texts=(*record.texts, "another")) for record in RECORDS]
    batch = BatchLoader(
        PairSampler(texts, 2 * COUNT, seed=0, every_text=True),
        BlackImages(),
        tiny_preprocessing().text,
        training=True,
        shortcuts=Shortcuts(ShortcutConfig.model_validate(kind), 3, COUNT),
    ).load(0, 0)
    assert batch.items is not None
    assert batch.inputs.glyphs is not None
    digits = batch.inputs.glyphs // 100
    by_image = [digits[batch.items == row] for row in range(COUNT)]
    assert [bool(torch.equal(first, second)) for first, second in by_image] == [shared] * COUNT
    hands = batch.inputs.glyphs % 100
    assert len({tuple(row) for row in hands.tolist()}) == 2 * COUNT


def test_without_shortcuts_or_on_texts_alone_nothing_is_pasted() -> None:
    assert loader(None).load(0, 0).inputs.glyphs is None
    assert loader(plan("text")).load(0, 0).inputs.glyphs is None


def test_digits_are_pasted_after_augmentation_and_before_normalisation() -> None:
    inputs = loader(plan("image")).load(0, 0).inputs
    overlay = DigitOverlay(seed=3, variants=100)
    image = tiny_preprocessing().image
    strong = Augmentation(AugmentationConfig(flip=1.0, rotation=90, crop_scale=(0.3, 0.5)), seed=0)
    assert inputs.glyphs is not None
    expected = image.normalise(overlay(torch.zeros(COUNT, 3, SIZE, SIZE), inputs.glyphs))
    # Black images stay black when they are moved; digits would not stay in place.
    pixels = PixelPreparation(image, strong, overlay)
    torch.testing.assert_close(pixels(inputs, step=5), expected)
    torch.testing.assert_close(pixels(inputs, step=None), expected)

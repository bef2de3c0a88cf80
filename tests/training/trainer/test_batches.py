"""Batches of pairs: their order, broken images, the shares of processes, shortcuts, and fetching ahead."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

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
from training.data.pairs import PairSampler, Position, Text, positive_mask
from training.models.preprocessing import TokenBatch
from training.objectives.base import Extras, ForTexts
from training.shortcuts.config import ShortcutConfig
from training.shortcuts.shortcuts import DigitOverlay, Shortcuts, with_digits
from training.trainer.batches import (
    Batch,
    BatchLoader,
    PixelPreparation,
    page_locked,
    prefetched,
    without_missing,
)
from training.trainer.run_state.errors import TrainingError
from training.trainer.run_state.processes import Processes

TEXTS = ("the same", "another", "the same", "a fourth", "a fifth", "a sixth")
COUNT, SIZE = len(TEXTS), 60
RECORDS = [
    Record(id=str(number), image=f"{number}.png", split="train", texts=(text,))
    for number, text in enumerate(TEXTS)
]


class FilledImages(ImageSource):
    """Each image is filled with its row, or black; some are broken."""

    def __init__(self, *broken: int, black: bool = False) -> None:
        self.readable = range(COUNT)
        self._broken, self._size, self._black = broken, SIZE if black else 2, black

    def load(self, rows: NDArray[np.int64]) -> tuple[Tensor, list[int]]:
        kept = [place for place, row in enumerate(rows) if row not in self._broken]
        values = torch.tensor(rows[kept] * (not self._black), dtype=torch.uint8)
        return values.view(-1, 1, 1, 1).expand(-1, 3, self._size, self._size), kept

    def blank(self, count: int) -> Tensor:
        return torch.zeros(count, 3, self._size, self._size, dtype=torch.uint8)

    def close(self) -> None:
        pass


def loader(
    *broken: int, batch_size: int = COUNT, black: bool = False, extra: ForTexts | None = None, **options: Any
) -> BatchLoader:
    text = tiny_preprocessing().text
    sampler = PairSampler(RECORDS, batch_size, seed=0)
    extras = Extras(rows={"number": torch.arange(COUNT)}, texts={"captions": extra or text})
    return BatchLoader(
        sampler, FilledImages(*broken, black=black), text, extras=extras, training=True, **options
    )


def parts_of(batch: Batch) -> tuple[list[int], Tensor, Tensor, Tensor]:
    """Items, tokens, captions and mask of a batch."""
    assert isinstance(batch.inputs.tokens, TokenBatch)
    assert batch.items is not None
    captions = batch.extras["captions"]
    assert isinstance(captions, TokenBatch)
    assert batch.positive_mask is not None
    assert len(captions.truncations) == len(batch.items) == len(batch.inputs)
    return batch.items.tolist(), batch.inputs.tokens.input_ids, captions.input_ids, batch.positive_mask


def test_a_broken_image_takes_its_text_and_its_place_in_the_mask_along() -> None:
    batch = without_missing(loader(1, 4).load(0, 0), Processes())
    items, tokens, captions, mask = parts_of(batch)
    rows = [int(row) for row in batch.inputs.images[:, 0, 0, 0]]
    assert sorted(rows) == [0, 2, 3, 5]
    assert items == rows
    texts = [TEXTS[row] for row in rows]
    assert torch.equal(tokens, tiny_preprocessing().text(texts).input_ids)
    assert torch.equal(captions, tokens)
    expected = positive_mask([RECORDS[row].texts for row in rows], texts)
    assert expected is not None
    assert torch.equal(mask, expected)


def test_made_items_are_as_large_as_the_largest_and_read_nothing() -> None:
    for processes, count in ((Processes(), 4), (Processes(1, 2), 2)):
        batch = loader(0, 1, 2, 3, 4, 5, processes=processes).largest(count)
        assert (len(batch.inputs), batch.inputs.batch_size) == (count, 4)
        assert batch.inputs.positions.tolist() == list(range(4))[-count:]
        assert batch.inputs.images.shape == (count, 3, 2, 2)
        items, tokens, captions, mask = parts_of(batch)
        longest = tiny_preprocessing().text(["the same"] * count).input_ids
        assert torch.equal(tokens, longest)
        assert torch.equal(captions, longest)
        assert len(items) == count
        assert torch.equal(mask, torch.eye(4, dtype=torch.bool)[-count:])


class Two(Processes):
    """One of two processes, told what the other misses."""

    def __init__(self, rank: int, missing: list[int]) -> None:
        super().__init__(rank, 2)
        object.__setattr__(self, "missing", missing)

    def any_rank(self, flags: Sequence[bool]) -> list[bool]:
        return [flag or place in vars(self)["missing"] for place, flag in enumerate(flags)]


def test_processes_load_their_shares_of_the_same_batch() -> None:
    items, _, _, mask = parts_of(loader().load(1, 0))
    for rank in (0, 1):
        part = loader(processes=Processes(rank, 2)).load(1, 0)
        rows = slice(3 * rank, 3 * rank + 3)
        ours, _, _, of_process = parts_of(part)
        assert ours == items[rows]
        assert part.inputs.positions.tolist() == [3 * rank, 3 * rank + 1, 3 * rank + 2]
        assert torch.equal(of_process, mask[rows])


def test_an_image_that_one_process_misses_shortens_the_batch_of_all() -> None:
    order, *_ = parts_of(loader().load(0, 0))
    parts = [
        parts_of(without_missing(loader(order[4], processes=Processes(rank, 2)).load(0, 0), Two(rank, [4])))
        for rank in (0, 1)
    ]
    rows = [items for items, *_ in parts]
    assert rows == [[order[0], order[1]], [order[3], order[5]]]
    texts = [TEXTS[row] for row in rows[0] + rows[1]]
    expected = positive_mask([(text,) for text in texts], texts)
    expected = torch.eye(4, dtype=torch.bool) if expected is None else expected
    for (_, _, captions, mask), columns in zip(parts, (slice(0, 2), slice(2, 4)), strict=True):
        assert len(captions) == 2
        assert torch.equal(mask, expected[columns])


def test_batches_follow_a_position_through_the_epochs() -> None:
    batches = loader(batch_size=3).from_position(Position(step=1, epoch=0, index=1))
    ours = [next(batches).inputs.images for _ in range(4)]
    expected = [loader(batch_size=3).load(*place).inputs.images for place in ((0, 1), (1, 0), (1, 1), (2, 0))]
    assert all(torch.equal(one, other) for one, other in zip(ours, expected, strict=True))


def test_batches_for_a_gpu_are_in_page_locked_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    # Without a GPU nothing can be locked: the copies stand for it.
    locked: list[Tensor] = []

    def lock(tensor: Tensor) -> Tensor:
        locked.append(tensor.clone())
        return locked[-1]

    monkeypatch.setattr(Tensor, "pin_memory", lock)
    batch = next(page_locked(loader().from_position(Position()), torch.device("cuda")))
    _, *tensors = parts_of(batch)
    for tensor in (*tensors, batch.inputs.images, batch.items):
        assert any(tensor is copy for copy in locked)
    assert torch.equal(batch.inputs.images, loader().load(0, 0).inputs.images)


def test_prefetching_keeps_order_and_passes_errors_on() -> None:
    def failing() -> Iterator[int]:
        yield from range(3)
        raise TrainingError("broken")

    with prefetched(iter(range(50))) as items:
        assert list(items) == list(range(50))
    with prefetched(failing()) as items, pytest.raises(TrainingError, match="broken"):
        list(items)


def plan(*modalities: str, in_targets: bool = False) -> Shortcuts:
    settings = {"kind": "unique", "modalities": modalities, "in_targets": in_targets}
    return Shortcuts(ShortcutConfig.model_validate(settings), 3, COUNT)


@pytest.mark.parametrize("in_targets", [False, True])
def test_an_image_and_its_text_share_an_id_that_the_target_has_only_on_demand(in_targets: bool) -> None:
    targets: list[Text] = []

    def note(texts: Sequence[Text]) -> Tensor:
        targets.extend(texts)
        return torch.zeros(COUNT, 1)

    shortcuts = plan("image", "text", in_targets=in_targets)
    batch = loader(black=True, shortcuts=shortcuts, extra=note).load(2, 0)
    assert isinstance(batch.inputs.tokens, TokenBatch)
    assert batch.items is not None
    rows, tokens = batch.items.tolist(), batch.inputs.tokens.input_ids
    ids = shortcuts.ids(2, np.array(rows)).tolist()
    written = [with_digits(TEXTS[row], number) for row, number in zip(rows, ids, strict=True)]
    assert tokens.equal(tiny_preprocessing().text(written).input_ids)
    assert batch.inputs.glyphs is not None
    digits = (batch.inputs.glyphs // 100).tolist()
    assert ["".join(map(str, row)) for row in digits] == [f"{number:06d}" for number in ids]
    assert targets == (written if in_targets else [TEXTS[row] for row in rows])


def test_a_broken_image_takes_its_digits_along_and_without_shortcuts_there_are_none() -> None:
    shortcuts = plan("image", "text")
    whole, partly = (loader(*broken, shortcuts=shortcuts).load(0, 0) for broken in ((), (1, 4)))
    kept = partly.inputs.positions
    assert len(kept) == COUNT - 2
    assert whole.inputs.glyphs is not None
    assert partly.inputs.glyphs is not None
    assert partly.inputs.glyphs.equal(whole.inputs.glyphs[kept])
    for nothing in (None, plan("text")):
        assert loader(shortcuts=nothing).load(0, 0).inputs.glyphs is None


@pytest.mark.parametrize(("kind", "shared"), [("unique", True), ("bits:13", False)])
def test_texts_of_an_image_share_a_unique_id_and_draw_their_own_bits(kind: str, shared: bool) -> None:
    texts = [replace(record, texts=(*record.texts, "one more")) for record in RECORDS]
    batch = BatchLoader(
        PairSampler(texts, 2 * COUNT, seed=0, every_text=True),
        FilledImages(black=True),
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


def test_digits_are_pasted_after_augmentation_and_before_normalisation() -> None:
    inputs = loader(black=True, shortcuts=plan("image")).load(0, 0).inputs
    overlay = DigitOverlay(seed=3, variants=100)
    image = tiny_preprocessing().image
    strong = Augmentation(AugmentationConfig(flip=1.0, rotation=90, crop_scale=(0.3, 0.5)), seed=0)
    assert inputs.glyphs is not None
    expected = image.normalise(overlay(torch.zeros(COUNT, 3, SIZE, SIZE), inputs.glyphs))
    # Black images stay black when they are moved; digits would not stay in place.
    pixels = PixelPreparation(image, strong, overlay)
    torch.testing.assert_close(pixels(inputs, step=5), expected)
    torch.testing.assert_close(pixels(inputs, step=None), expected)

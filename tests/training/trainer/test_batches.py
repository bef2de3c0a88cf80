from collections.abc import Sequence

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from tests.training.models.tiny import tiny_preprocessing
from training.common.record import Record
from training.data.image_source import ImageSource
from training.data.pairs import PairSampler, Position, positive_mask
from training.models.preprocessing import TokenBatch
from training.trainer.batches import BatchLoader, page_locked, without_missing
from training.trainer.run_state.processes import Processes

TEXTS = ("the same", "another", "the same", "a fourth", "a fifth", "a sixth")
RECORDS = [
    Record(id=str(number), image=f"{number}.png", split="train", texts=(text,))
    for number, text in enumerate(TEXTS)
]


class NumberedImages(ImageSource):
    """Each image is filled with its row; some are broken."""

    def __init__(self, *broken: int) -> None:
        self.readable = range(len(RECORDS))
        self._broken = broken

    def load(self, rows: NDArray[np.int64]) -> tuple[Tensor, list[int]]:
        kept = [place for place, row in enumerate(rows) if row not in self._broken]
        return torch.tensor(rows[kept], dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, 3, 2, 2), kept

    def blank(self, count: int) -> Tensor:
        return torch.zeros(count, 3, 2, 2, dtype=torch.uint8)

    def close(self) -> None:
        pass


def loader(*broken: int, batch_size: int = 6, processes: Processes | None = None) -> BatchLoader:
    sampler = PairSampler(RECORDS, batch_size, seed=0)
    text = tiny_preprocessing().text
    return BatchLoader(
        sampler, NumberedImages(*broken), text, captions=text, training=True, processes=processes
    )


def test_a_broken_image_takes_its_text_and_its_place_in_the_mask_along() -> None:
    batch = without_missing(loader(1, 4).load(0, 0), Processes())
    rows = [int(row) for row in batch.inputs.images[:, 0, 0, 0]]
    assert sorted(rows) == [0, 2, 3, 5]
    texts = [TEXTS[row] for row in rows]
    assert isinstance(batch.inputs.tokens, TokenBatch)
    assert torch.equal(batch.inputs.tokens.input_ids, tiny_preprocessing().text(texts).input_ids)
    assert batch.captions is not None
    assert torch.equal(batch.captions.input_ids, batch.inputs.tokens.input_ids)
    assert batch.items is not None
    assert batch.items.tolist() == rows
    expected = positive_mask([RECORDS[row].texts for row in rows], texts)
    assert batch.positive_mask is not None
    assert expected is not None
    assert torch.equal(batch.positive_mask, expected)


def test_made_items_are_as_large_as_the_largest_and_read_nothing() -> None:
    for processes, items in ((Processes(), 4), (Processes(1, 2), 2)):
        batch = loader(0, 1, 2, 3, 4, 5, processes=processes).largest(items)
        inputs = batch.inputs
        assert (len(inputs), inputs.batch_size) == (items, 4)
        assert inputs.places.tolist() == list(range(4))[-items:]
        assert inputs.images.shape == (items, 3, 2, 2)
        assert isinstance(inputs.tokens, TokenBatch)
        longest = tiny_preprocessing().text(["the same"] * items)
        assert torch.equal(inputs.tokens.input_ids, longest.input_ids)
        assert batch.captions is not None
        assert torch.equal(batch.captions.input_ids, longest.input_ids)
        assert batch.items is not None
        assert len(batch.items) == items
        assert batch.positive_mask is not None
        assert torch.equal(batch.positive_mask, torch.eye(4, dtype=torch.bool)[-items:])


class Two(Processes):
    """One of two processes, told what the other misses."""

    def __init__(self, rank: int, missing: list[int]) -> None:
        super().__init__(rank, 2)
        object.__setattr__(self, "missing", missing)

    def any_of(self, flags: Sequence[bool]) -> list[bool]:
        return [flag or place in vars(self)["missing"] for place, flag in enumerate(flags)]


def test_processes_load_their_shares_of_the_same_batch() -> None:
    whole = loader().load(1, 0)
    assert whole.items is not None
    assert whole.positive_mask is not None
    for rank in (0, 1):
        part = loader(processes=Processes(rank, 2)).load(1, 0)
        rows = slice(3 * rank, 3 * rank + 3)
        assert part.items is not None
        assert part.positive_mask is not None
        assert part.items.tolist() == whole.items[rows].tolist()
        assert part.inputs.places.tolist() == [3 * rank, 3 * rank + 1, 3 * rank + 2]
        assert torch.equal(part.positive_mask, whole.positive_mask[rows])


def test_an_image_that_one_process_misses_shortens_the_batch_of_all() -> None:
    whole = loader().load(0, 0)
    assert whole.items is not None
    order = whole.items.tolist()
    broken = order[4]
    parts = [
        without_missing(loader(broken, processes=Processes(rank, 2)).load(0, 0), Two(rank, [4]))
        for rank in (0, 1)
    ]
    rows = [part.items.tolist() for part in parts if part.items is not None]
    assert rows == [[order[0], order[1]], [order[3], order[5]]]
    texts = [TEXTS[row] for row in rows[0] + rows[1]]
    expected = positive_mask([(text,) for text in texts], texts)
    for part, columns in zip(parts, (slice(0, 2), slice(2, 4)), strict=True):
        assert len(part.inputs) == 2
        assert part.captions is not None
        assert len(part.captions.input_ids) == len(part.captions.truncations) == 2
        assert part.positive_mask is not None
        wanted = torch.eye(4, dtype=torch.bool) if expected is None else expected
        assert torch.equal(part.positive_mask, wanted[columns])


def test_batches_follow_a_position_through_the_epochs() -> None:
    batches = loader(batch_size=3).from_position(Position(step=1, epoch=0, index=1))
    found = [next(batches).inputs.images for _ in range(4)]
    expected = [loader(batch_size=3).load(*place).inputs.images for place in ((0, 1), (1, 0), (1, 1), (2, 0))]
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(found, expected, strict=True))


def test_batches_for_a_gpu_are_in_page_locked_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    # Without a GPU nothing can be locked: the copies stand for it.
    locked: list[Tensor] = []

    def lock(tensor: Tensor) -> Tensor:
        locked.append(tensor.clone())
        return locked[-1]

    monkeypatch.setattr(Tensor, "pin_memory", lock)
    sampler, text = PairSampler(RECORDS, 6, seed=0), tiny_preprocessing().text
    batches = BatchLoader(sampler, NumberedImages(), text, captions=text, training=True)
    batch = next(page_locked(batches.from_position(Position()), torch.device("cuda")))
    expected = loader().load(0, 0)
    assert isinstance(batch.inputs.tokens, TokenBatch)
    assert batch.captions is not None
    assert batch.positive_mask is not None
    for tensor in (batch.inputs.images, batch.inputs.tokens.input_ids, batch.captions.input_ids, batch.items):
        assert any(tensor is copy for copy in locked)
    assert any(batch.positive_mask is copy for copy in locked)
    assert torch.equal(batch.inputs.images, expected.inputs.images)

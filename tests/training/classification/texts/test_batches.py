"""Which examples a run draws, and in what order."""

from itertools import chain

import torch

from tests.training.models.tiny import tiny_tokenizer
from training.classification.texts.batches import ExampleLoader, fingerprint
from training.classification.texts.glue import Example
from training.classification.texts.text_pairs import PairTokenizer
from training.data.pairs import Position
from training.tasks.config import TaskDataConfig
from training.tasks.share import kept_share

EXAMPLES = tuple(Example(f"text {number}", None, float(number)) for number in range(11))


def loader(size: int = 4, seed: int = 0) -> ExampleLoader:
    return ExampleLoader(EXAMPLES, PairTokenizer(tiny_tokenizer(), 16), size, seed)


def drawn(source: ExampleLoader, position: Position, count: int) -> list[list[int]]:
    batches = source.from_position(position)
    return [next(batches).items.tolist() for _ in range(count)]


def test_an_epoch_has_every_example_once_in_an_order_of_its_own() -> None:
    source = loader()
    assert source.batches_per_epoch == 3
    batches = drawn(source, Position(), 6)
    assert [len(batch) for batch in batches] == [4, 4, 3, 4, 4, 3]
    first, second = list(chain(*batches[:3])), list(chain(*batches[3:]))
    assert sorted(first) == sorted(second) == list(range(11))
    assert first != second
    assert drawn(loader(seed=1), Position(), 1) != batches[:1]


def test_any_position_goes_on_where_it_was() -> None:
    everything, position = drawn(loader(), Position(), 7), Position()
    for start in range(6):
        assert drawn(loader(), position, 7 - start) == everything[start:]
        position = position.next(3)


def test_labels_and_rows_belong_to_the_items() -> None:
    batch = next(loader().from_position(Position()))
    assert batch.labels.tolist() == batch.items.tolist()
    alone = PairTokenizer(tiny_tokenizer(), 16)([EXAMPLES[int(item)] for item in batch.items])
    assert torch.equal(alone.input_ids, batch.tokens.input_ids)


def test_in_order_goes_through_all() -> None:
    assert [batch.items.tolist() for batch in loader(5).in_order()] == [
        [0, 1, 2, 3, 4],
        [5, 6, 7, 8, 9],
        [10],
    ]


def test_a_share_is_drawn_by_its_own_seed() -> None:
    half = kept_share(EXAMPLES, TaskDataConfig(share=0.5))
    assert len(half) == 5
    assert list(half) == sorted(half, key=lambda example: example.label)
    assert half == kept_share(EXAMPLES, TaskDataConfig(share=0.5))
    assert half != kept_share(EXAMPLES, TaskDataConfig(share=0.5, share_seed=1))
    assert len(kept_share(EXAMPLES, TaskDataConfig(share=0.001))) == 1
    assert kept_share(EXAMPLES, TaskDataConfig()) == EXAMPLES


def test_fingerprint_knows_texts_labels_and_order() -> None:
    one, other = Example("a", "b", 1.0), Example("a", "b", 0.0)
    prints = {fingerprint(examples) for examples in ([one, other], [other, one], [one], [other], [])}
    assert len(prints) == 5

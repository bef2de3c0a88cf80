"""Rows and labels of a batch, and the fingerprint of examples."""

import torch

from tests.training.models.tiny import tiny_tokenizer
from training.classification.texts.glue import Example
from training.classification.texts.run import ExampleLoader, fingerprint
from training.classification.texts.text_pairs import PairTokenizer
from training.data.pairs import Position

EXAMPLES = tuple(Example(f"text {number}", None, float(number)) for number in range(11))


def test_labels_and_rows_belong_to_the_items() -> None:
    tokenizer = PairTokenizer(tiny_tokenizer(), 16)
    batch = next(ExampleLoader(EXAMPLES, batch_size=4, tokenizer=tokenizer).from_position(Position()))
    assert batch.labels.tolist() == batch.items.tolist()
    alone = tokenizer([EXAMPLES[int(item)] for item in batch.items])
    assert torch.equal(alone.input_ids, batch.tokens.input_ids)


def test_fingerprint_knows_texts_labels_and_order() -> None:
    one, other = Example("a", "b", 1.0), Example("a", "b", 0.0)
    prints = {fingerprint(examples) for examples in ([one, other], [other, one], [one], [other], [])}
    assert len(prints) == 5

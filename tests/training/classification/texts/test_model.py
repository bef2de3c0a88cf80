"""The classifier: what it gives, and what of a row has an influence."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.training.models.tiny import TEXT_OPTIONS, tiny_tokenizer
from training.classification.texts.config import TextClassifierConfig
from training.classification.texts.glue import Example
from training.classification.texts.model import ClassifierOutput, TextClassifier, TextTask
from training.classification.texts.text_pairs import PairTokenizer, PairTokens
from training.common.errors import RecipeError
from training.models.config import TextArchitecture
from training.papers.reclaim import ReclaimTermSettings

ARCHITECTURES: tuple[TextArchitecture, ...] = ("bert", "distilbert", "roberta", "small_transformer")
EXAMPLES = (Example("a cat", "two dogs run", 0), Example("the heart is enlarged", "x-ray", 1))


def build(architecture: TextArchitecture = "bert", **settings: Any) -> TextClassifier:
    torch.manual_seed(0)
    options = TEXT_OPTIONS[architecture] | ({"type_vocab_size": 1} if architecture == "roberta" else {})
    content = {"architecture": architecture, "options": options, "max_tokens": 32}
    config = TextClassifierConfig.model_validate({**content, **settings})
    return TextClassifier(config, tiny_tokenizer(), 2, load=False).eval()


def tokens(*examples: Example) -> PairTokens:
    return PairTokenizer(tiny_tokenizer(), 32)(examples or EXAMPLES)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("pooling", ["cls", "mean", "max"])
def test_padding_has_no_influence(architecture: TextArchitecture, pooling: str) -> None:
    model = build(architecture, pooling=pooling)
    together = model(tokens())
    for index, example in enumerate(EXAMPLES):
        alone: ClassifierOutput = model(tokens(example))
        for name in ("logits", "words", "sentence"):
            ours, theirs = getattr(alone, name)[0], getattr(together, name)[index]
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)
    assert together.logits.shape == (2, 2)
    assert together.words.shape == together.sentence.shape == (2, model.width)


def test_words_are_what_the_embedding_layer_gives_and_learn() -> None:
    model, rows = build("small_transformer"), tokens()
    embeddings = model.tower.backbone.stem()[0]
    expected = embeddings(rows.input_ids)
    mask = rows.attention_mask.unsqueeze(-1)
    mean = (expected * mask).sum(dim=1) / mask.sum(dim=1)
    output = model(rows)
    torch.testing.assert_close(output.words, mean)
    torch.autograd.backward(output.words.sum())
    assert any(parameter.grad is not None for parameter in embeddings.parameters())


def test_only_bert_tells_the_second_text_by_its_segment() -> None:
    rows = tokens()
    same = replace(rows, segments=torch.zeros_like(rows.segments))
    for architecture in ARCHITECTURES:
        model = build(architecture)
        differs = not torch.allclose(model(rows).logits, model(same).logits, atol=1e-6)
        assert differs is (architecture == "bert")


def test_more_tokens_than_the_backbone_reads_are_refused() -> None:
    with pytest.raises(RecipeError, match=r"model\.max_tokens"):
        build("small_transformer", max_tokens=200)


def test_the_term_is_added_with_its_weight() -> None:
    model, rows = build("small_transformer"), tokens()
    labels, items = torch.tensor([0.0, 1.0]), torch.tensor([3, 1])
    arguments = (rows.input_ids, rows.attention_mask, rows.segments, labels, items)
    plain = TextTask(model, regression=False, reclaim=None, instances=5).eval()
    settings = ReclaimTermSettings(weight=0.7, neighbours=2, critic_width=4)
    term = TextTask(model, regression=False, reclaim=settings, instances=5).eval()
    total, terms = plain(*arguments)
    assert terms.keys() == {"task"}
    with_term, found = term(*arguments)
    torch.testing.assert_close(with_term, total + 0.7 * found["reclaim"])
    expected = torch.nn.functional.cross_entropy(model(rows).logits, torch.tensor([0, 1]))
    torch.testing.assert_close(total, expected)


def test_memory_moves_with_training_steps() -> None:
    settings = ReclaimTermSettings(neighbours=2, critic_width=4)
    task = TextTask(build(), regression=False, reclaim=settings, instances=5).train()
    rows = tokens()
    assert task.term is not None
    before = task.term.first_bank.rows.clone()
    task(rows.input_ids, rows.attention_mask, rows.segments, torch.zeros(2), torch.tensor([3, 1]))
    task.after_step()
    moved = (task.term.first_bank.rows != before).any(dim=1)
    assert moved.tolist() == [False, True, False, True, False]


def test_scores_have_the_squared_error() -> None:
    torch.manual_seed(0)
    config = TextClassifierConfig(architecture="bert", options=TEXT_OPTIONS["bert"], max_tokens=32)
    model = TextClassifier(config, tiny_tokenizer(), 1, load=False).eval()
    task = TextTask(model, regression=True, reclaim=None, instances=2)
    rows, labels = tokens(), torch.tensor([1.5, 4.0])
    total, _ = task(rows.input_ids, rows.attention_mask, rows.segments, labels, torch.tensor([0, 1]))
    torch.testing.assert_close(total, (model(rows).logits[:, 0] - labels).square().mean())

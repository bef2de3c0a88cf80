from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import BertConfig, BertModel, MPNetConfig, MPNetModel, ViTConfig, ViTModel

from tests.training.models.tiny import BERT_SIZE, TEXTS, write_tokenizer
from training.common.errors import RecipeError
from training.models.pretrained.tokens import load_tokenizer
from training.models.sentence_encoder import SentenceEncoder

WORDS = ("cat", "dog", "red", "ball", "lungs", "clear", "the", "of", "grass", "two")


def sentences(count: int, seed: int = 0) -> list[str]:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 30, (count,), generator=generator)
    return [
        " ".join(WORDS[int(word)] for word in torch.randint(len(WORDS), (int(length),), generator=generator))
        + f" {number}"
        for number, length in enumerate(lengths)
    ]


def load(folder: Path, **settings: Any) -> SentenceEncoder:
    return SentenceEncoder.load(str(folder), "cpu", **settings)


def slow(folder: Path, text: str, limit: int = 40) -> Tensor:
    """One text without padding, straight through transformers."""
    model: Any = BertModel.from_pretrained(folder)
    model.eval()
    encoding = load_tokenizer(folder).encode([text])[0]
    ids = encoding.ids if len(encoding.ids) <= limit else [*encoding.ids[: limit - 1], encoding.ids[-1]]
    with torch.no_grad():
        hidden: Tensor = model(torch.tensor([ids])).last_hidden_state[0]
    mean = hidden.mean(dim=0)
    unit: Tensor = mean / mean.norm()
    return unit


def test_is_the_normalised_mean_over_real_tokens(sentence_encoder: Path) -> None:
    texts = [*TEXTS, "", "cat " * 100]
    ours = load(sentence_encoder).encode(texts)
    for vector, text in zip(ours, texts, strict=True):
        torch.testing.assert_close(vector, slow(sentence_encoder, text), rtol=0, atol=1e-5)
    assert ours.shape == (len(texts), 16)
    assert ours.dtype == torch.float32
    assert not ours.requires_grad
    torch.testing.assert_close(ours.norm(dim=1), torch.ones(len(texts)))
    assert load(sentence_encoder).encode([]).shape == (0, 16)
    # Not an inference tensor, which no product with a gradient could use.
    torch.autograd.backward((ours * torch.ones(16, requires_grad=True)).sum())


def test_a_text_has_the_same_vector_in_any_company(sentence_encoder: Path) -> None:
    texts = sentences(40)
    together = load(sentence_encoder).encode(texts)
    apart = load(sentence_encoder)
    backwards = load(sentence_encoder).encode(texts[::-1]).flip(0)
    alone = torch.cat([apart.encode([text]) for text in texts])
    assert torch.equal(alone, together)
    assert torch.equal(backwards, together)


def test_a_text_is_encoded_once_while_there_is_room(
    sentence_encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = load(sentence_encoder, cached_texts=3)
    run = encoder._run
    encoded: list[str] = []

    def counted(block: list[str]) -> Tensor:
        encoded.extend(block)
        return run(block)

    monkeypatch.setattr(encoder, "_run", counted)
    encoder.encode(["a", "b", "a"])
    encoder.encode(["a", "c"])
    assert sorted(encoded) == ["a", "b", "c"]
    encoder.encode(["d"])
    assert list(encoder._cache) == ["a", "c", "d"]
    more = encoder.encode(["e", "f", "g", "h", "a"])
    assert more.shape == (5, 16)
    assert len(encoder._cache) == 3


def test_mpnet_of_the_paper_loads_with_its_longest_text(tmp_path: Path) -> None:
    config = MPNetConfig(vocab_size=300, max_position_embeddings=24, pad_token_id=1, **BERT_SIZE)
    MPNetModel(config).save_pretrained(tmp_path)
    write_tokenizer(tmp_path)
    assert load(tmp_path).encode(["cat " * 60]).isfinite().all()


def test_what_embeds_no_sentences_is_refused(sentence_encoder: Path, tmp_path: Path) -> None:
    for name in (None, str(tmp_path)):
        with pytest.raises(RecipeError, match=r"data\.target_encoder"):
            SentenceEncoder.load(name)
    for file in sentence_encoder.glob("*.json"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    # Pickled weights are never read.
    model = BertModel(BertConfig(vocab_size=300, **BERT_SIZE))
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(RecipeError, match="cannot be loaded"):
        load(tmp_path)
    ViTModel(ViTConfig(image_size=16, patch_size=8, **BERT_SIZE)).save_pretrained(tmp_path)
    with pytest.raises(RecipeError, match="embeds no sentences"):
        load(tmp_path)

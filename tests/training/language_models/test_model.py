"""The model against one that reads and writes word by word, and what must not matter to it."""

import pytest
import torch
from torch import Tensor

from tests.training.language_models.samples import tiny_tree
from training.language_models.config import SentenceVaeConfig
from training.language_models.corpus import PAD, START, UNKNOWN
from training.language_models.model import SentenceVae

IDS = torch.tensor([[2, 5, 6, 7, 3], [2, 8, 3, PAD, PAD], [2, 6, 6, 3, PAD]])
LENGTHS = torch.tensor([5, 3, 4])
ONE = torch.ones((), dtype=torch.float64)


def build(**settings: object) -> SentenceVae:
    torch.manual_seed(0)
    config = SentenceVaeConfig.model_validate({**tiny_tree()["model"], **settings})
    return SentenceVae(config, vocabulary=9).double().eval()


def test_likelihoods_are_those_of_one_word_after_the_other() -> None:
    vae = build(init_range=0.5)
    codes = torch.randn(3, 4, dtype=torch.float64)
    decoder = vae.decoder
    for row, length in enumerate(LENGTHS.tolist()):
        hidden = decoder.start(codes[row]).reshape(1, 1, -1)
        cell, total = torch.zeros_like(hidden), 0.0
        for place in range(length - 1):
            word = decoder.words(IDS[row, place])
            seen = torch.cat([word, codes[row]]).reshape(1, 1, -1)
            state, (hidden, cell) = decoder.lstm(seen, (hidden, cell))
            total -= decoder.output(state[0, 0]).log_softmax(dim=0)[IDS[row, place + 1]].item()
        assert decoder(codes, IDS, LENGTHS)[row].item() == pytest.approx(total, abs=1e-10)


def test_the_state_is_that_behind_the_last_word() -> None:
    vae = build()
    state, words = vae.encoder(IDS, LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        embedded = vae.encoder.words(IDS[row, :length])
        _, (hidden, _) = vae.encoder.lstm(embedded.unsqueeze(0))
        torch.testing.assert_close(state[row], hidden[0, 0])
        torch.testing.assert_close(words[row], embedded.mean(dim=0))


@pytest.mark.parametrize("posterior", ["gaussian", "implicit"])
def test_padding_and_the_other_sentences_do_not_matter(posterior: str) -> None:
    vae = build(posterior=posterior)

    def found(ids: Tensor, lengths: Tensor) -> list[Tensor]:
        torch.manual_seed(1)
        output = vae(ids, lengths, ONE)
        return [output.reconstruction[0], output.words[0], output.latent.centres[0]]

    alone = found(IDS[:1], LENGTHS[:1])
    padded = torch.cat([IDS, torch.full((3, 4), PAD)], dim=1)
    torch.testing.assert_close(found(padded[:1], LENGTHS[:1]), alone)
    others = padded.clone()
    others[:, 5:] = 8
    torch.testing.assert_close(found(others[:1], LENGTHS[:1]), alone)
    wide = vae.encoder(padded, LENGTHS)
    torch.testing.assert_close(wide, vae.encoder(IDS, LENGTHS))
    codes = torch.randn(3, 4, dtype=torch.float64)
    torch.testing.assert_close(vae.decoder(codes, padded, LENGTHS), vae.decoder(codes, IDS, LENGTHS))


def test_the_code_is_seen_by_every_word() -> None:
    vae = build(init_range=0.5)
    codes = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    (slopes,) = torch.autograd.grad(vae.decoder(codes, IDS, LENGTHS)[0], codes)
    assert slopes[0].abs().min() > 0
    assert slopes[1:].abs().max() == 0


def test_hidden_words_are_unknown_and_only_in_training() -> None:
    decoder = build(word_dropout=0.5).decoder
    ids = torch.tensor([START, *[5] * 400]).unsqueeze(0)
    assert torch.equal(decoder._seen(ids), ids)
    decoder.train()
    seen = decoder._seen(ids)
    assert seen[0, 0] == START
    assert set(seen[0, 1:].tolist()) == {5, UNKNOWN}
    assert 150 < int((seen == UNKNOWN).sum()) < 250


@pytest.mark.parametrize("posterior", ["gaussian", "implicit"])
def test_weights_begin_in_their_range_but_for_the_networks_of_densities(posterior: str) -> None:
    vae = build(init_range=0.03, posterior=posterior)
    for name, parameter in vae.named_parameters():
        inside = bool((parameter.abs() <= 0.03).all())
        assert inside is not ("posterior.of_" in name), name
    assert vae.encoder.words.weight.abs().max() > 0.025

"""Language models: sentences, posteriors, the model and its loss, figures, recipes, and whole runs."""

import json
import math
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning_fabric import Fabric
from torch import Tensor
from torch.distributions import Independent, Normal, kl_divergence

from tests.training.papers.samples import tiny_language_recipe, tiny_language_tree, write_sentences
from tests.training.runs import assert_same_runs, before_step, lines, terminate
from training.common.errors import DataError
from training.papers.language_models import (
    END,
    NAMES,
    PAD,
    START,
    UNKNOWN,
    AnnealingConfig,
    Gaussian,
    GaussianPosterior,
    ImplicitPosterior,
    LanguageModelRecipe,
    LanguageModelTask,
    Latent,
    RatioConfig,
    Reconstruct,
    RefinementConfig,
    SentenceLoader,
    SentenceVae,
    SentenceVaeConfig,
    VaeOutput,
    Vocabulary,
    figures,
    measure,
    published,
    read_corpus,
    refined,
    train_language_model,
)
from training.papers.load import language_model_recipes, load_language_recipe
from training.papers.reclaim import ReclaimTermSettings
from training.recipes.load import parse_as
from training.trainer.loop import TrainingLoop
from training.trainer.module_task import TaskResult
from training.trainer.opening import RunOptions
from training.trainer.run_state.checkpoint import fingerprint, load_checkpoint
from training.trainer.run_state.errors import TrainingError, TrainingInterruptedError

ONE = torch.ones((), dtype=torch.float64)

# Sentences.


def test_a_line_is_a_sentence_and_broken_lines_are_named(tmp_path: Path) -> None:
    path = tmp_path / "train.txt"
    path.write_bytes(b"\xef\xbb\xbf a cat \r\n\n \na\x0bdog\xc2\x85sits\n\xff\n")
    corpus = read_corpus(path)
    assert corpus.items == ("a cat", "a\x0bdog\x85sits")
    assert [(item.line, item.reason) for item in corpus.rejections.items] == [(5, "it is not UTF-8")]
    with pytest.raises(DataError, match=r"train\.txt"):
        read_corpus(path, max_rejected=0.001)
    path.write_bytes(b"\n \n")
    with pytest.raises(DataError, match=r"train\.txt has no sentence"):
        read_corpus(path)
    with pytest.raises(DataError, match=r"valid\.txt cannot be read"):
        read_corpus(tmp_path / "valid.txt")


def test_words_are_numbered_by_how_often_they_occur_and_batches_padded() -> None:
    sentences = ("b a a", "a c <unk> b", "a <s> </s> <pad>")
    vocabulary = Vocabulary(sentences, 100)
    first = max(PAD, UNKNOWN, START, END) + 1
    assert vocabulary.ids("a b <unk> new", 10) == [START, first, first + 1, UNKNOWN, UNKNOWN, END]
    assert len(vocabulary) == first + len({"a", "b", "c", "<s>", "</s>", "<pad>"})
    assert not {PAD, UNKNOWN, START, END} & set(vocabulary.ids("<s> </s> <pad>", 10)[1:-1])
    small = Vocabulary(sentences, 6)
    assert len(small) == 6
    assert small.ids("c a a", 2) == [START, UNKNOWN, first, END]
    loader = SentenceLoader(sentences, batch_size=2, vocabulary=vocabulary, max_words=3)
    whole, last = loader.in_order()
    assert whole.lengths.tolist() == [5, 5]
    assert (last.items.tolist(), last.lengths.tolist()) == ([2], [5])
    padded = SentenceLoader(sentences, batch_size=2, vocabulary=vocabulary, max_words=10).batch([0, 1])
    assert padded.lengths.tolist() == [5, 6]
    assert padded.ids[0].tolist() == [*vocabulary.ids(sentences[0], 10), PAD]
    assert [loader.length(index) for index in range(3)] == [3, 3, 3]
    assert len({fingerprint(texts) for texts in (["a b", "c"], ["a", "b c"], ["c", "a b"])}) == 3


# Gaussian posteriors.


def gaussian(seed: int = 0, batch: int = 3, latent: int = 2) -> Gaussian:
    generator = torch.Generator().manual_seed(seed)
    mean, log_variance = torch.randn((2, batch, latent), generator=generator, dtype=torch.float64)
    return Gaussian(mean, log_variance)


def test_divergence_and_samples_are_those_of_the_densities() -> None:
    posterior = gaussian()
    ours = Independent(Normal(posterior.mean, (posterior.log_variance / 2).exp()), 1)
    prior = Independent(Normal(torch.zeros_like(posterior.mean), 1.0), 1)
    torch.testing.assert_close(posterior.kl(), kl_divergence(ours, prior))
    torch.manual_seed(0)
    mean, log_variance = posterior.mean[:1], posterior.log_variance[:1]
    samples = Gaussian(mean.expand(20_000, -1), log_variance.expand(20_000, -1)).sample()
    torch.testing.assert_close(samples.mean(dim=0), mean[0], atol=0.05, rtol=0)
    torch.testing.assert_close(samples.var(dim=0), log_variance[0].exp(), atol=0.1, rtol=0.05)


def test_information_is_that_of_the_mixture_of_the_batch() -> None:
    posterior, codes = gaussian(), gaussian(1).mean
    mean, variance = posterior.mean, posterior.log_variance.exp()
    scale = 2 * math.pi * variance
    # Densities (code, posterior) of all pairs, and the entropy of each posterior.
    densities = (torch.exp(-((codes.unsqueeze(1) - mean) ** 2) / (2 * variance)) / scale.sqrt()).prod(dim=2)
    expected = -(1 + scale.log()).sum(dim=1) / 2 - densities.mean(dim=1).log()
    torch.testing.assert_close(posterior.information(codes), expected)
    torch.manual_seed(0)
    for distance, information in ((100.0, math.log(400)), (0.0, 0.0)):
        apart = Gaussian(distance * torch.arange(400.0).unsqueeze(1), torch.zeros(400, 1))
        assert apart.information(apart.sample()).mean().item() == pytest.approx(information, abs=0.1)


def far_from(target: Tensor) -> Reconstruct:
    """A loss with a curvature, so that steps depend on where they begin."""
    return lambda codes: ((codes - target) ** 4).sum(dim=1)


def test_refinement_is_steps_with_momentum_and_long_gradients_are_shortened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch, "randn_like", torch.zeros_like)
    start = gaussian(batch=2)
    config = RefinementConfig(steps=2, rate=0.05, momentum=0.5, max_grad_norm=100.0)
    target = torch.ones(2, 2, dtype=torch.float64)
    mean, speed = start.mean.clone(), torch.zeros_like(start.mean)
    for _ in range(2):
        slope = (4 * (mean - target) ** 3 + 0.3 * mean) / 2  # the mean over two sentences
        speed = 0.5 * speed - slope
        mean = mean + 0.05 * speed
    with torch.no_grad():
        end = refined(start, far_from(target), 0.3 * ONE, config, training=False)
    torch.testing.assert_close(end.mean, mean)
    config = RefinementConfig(steps=1, rate=1.0, max_grad_norm=0.01)
    end = refined(start, far_from(9 * target), ONE, config, training=False)
    assert (end.mean - start.mean).norm().item() == pytest.approx(0.01)


def test_the_gradient_goes_through_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    noise = gaussian(2).mean
    monkeypatch.setattr(torch, "randn_like", lambda _: noise)
    config = RefinementConfig(steps=3, rate=0.05, max_grad_norm=1e9)

    def steps(mean: Tensor, log_variance: Tensor, target: Tensor) -> Tensor:
        end = refined(Gaussian(mean, log_variance), far_from(target), ONE, config, training=True)
        return torch.cat([end.mean, end.log_variance])

    start = gaussian()
    values = [start.mean, start.log_variance, torch.ones_like(start.mean)]
    assert torch.autograd.gradcheck(steps, [value.requires_grad_() for value in values])


@pytest.mark.parametrize("refinement", [None, RefinementConfig(steps=2)])
def test_posterior_gives_what_its_layers_say(refinement: RefinementConfig | None) -> None:
    torch.manual_seed(0)
    posterior = GaussianPosterior(5, 2, refinement).double()
    state = torch.randn(3, 5, dtype=torch.float64)
    latent = posterior(state, far_from(torch.ones(3, 2, dtype=torch.float64)), ONE)
    assert not latent.information.requires_grad
    latent.kl.sum().backward()
    assert all(parameter.grad is not None for parameter in posterior.parameters())
    assert torch.equal(latent.centres, posterior.mean(state)) is (refinement is None)


# Implicit posteriors.

STATE = torch.zeros(512, 1)


def nothing(codes: Tensor) -> Tensor:
    return codes.new_zeros(len(codes))


def implicit(**settings: float) -> ImplicitPosterior:
    torch.manual_seed(0)
    return ImplicitPosterior(1, 1, RatioConfig.model_validate({"width": 32, "lr": 3e-3, **settings}))


def test_the_networks_find_the_divergence_of_a_known_posterior() -> None:
    """Codes are `.5 noise + state`, with states of -1 and 1 alike."""
    model = implicit(updates=300).train()
    with torch.no_grad():
        model.draw.weight.copy_(torch.tensor([[1.0, 0.5]]))
        model.draw.bias.zero_()
    state = torch.tensor([-1.0, 1.0]).repeat(256).unsqueeze(1)
    model(state, nothing, ONE)
    before = [parameter.clone() for parameter in model.eval().parameters()]
    with torch.no_grad():
        latents = [model(state, nothing, ONE) for _ in range(20)]
    # Outside training the networks stay.
    assert all(torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))
    kl = torch.stack([latent.kl for latent in latents]).mean().item()
    information = torch.stack([latent.information for latent in latents]).mean().item()
    assert kl == pytest.approx((1 + 0.25 - math.log(0.25) - 1) / 2, abs=0.15)
    # The code tells the two states apart but for their overlap: nearly one bit.
    assert 0.45 < information < 0.75


def test_the_model_s_loss_leaves_the_networks_alone_and_they_leave_the_model() -> None:
    model = implicit(updates=2).train()
    networks = [*model.of_sentence.parameters(), *model.of_all.parameters()]
    before = [parameter.clone() for parameter in networks]
    latent = model(STATE.clone().requires_grad_(), nothing, ONE)
    assert all(parameter.grad is None for parameter in [*networks, *model.draw.parameters()])
    assert all(not torch.equal(old, new) for old, new in zip(before, networks, strict=True))
    latent.kl.mean().backward()
    assert all(parameter.grad is None for parameter in networks)
    assert all(parameter.grad is not None for parameter in model.draw.parameters())


def test_the_gradient_of_the_divergence_is_that_of_the_network_at_the_codes() -> None:
    model = implicit().eval()
    state = torch.randn(6, 1, requires_grad=True)
    latent = model(state, nothing, ONE)
    slopes, of_state = torch.autograd.grad(latent.kl.sum(), [latent.codes, state])
    codes = latent.codes.detach().requires_grad_()
    ratio = model.of_sentence(torch.cat([codes, state.detach()], dim=1))
    (expected,) = torch.autograd.grad(ratio.sum(), codes)
    torch.testing.assert_close(slopes, expected)
    # The encoder learns by the codes alone.
    torch.testing.assert_close(of_state, expected @ model.draw.weight[:, :1])


def test_a_checkpoint_has_the_networks_optimizer() -> None:
    model, other = implicit(updates=1).train(), implicit(updates=1).train()
    model(STATE, nothing, ONE)
    other.load_state_dict(deepcopy(model.state_dict()))
    for either in (model, other):
        torch.manual_seed(5)
        either(STATE, nothing, ONE)
    assert all(torch.equal(*pair) for pair in zip(model.parameters(), other.parameters(), strict=True))


# The model and its loss.

IDS = torch.tensor([[2, 5, 6, 7, 3], [2, 8, 3, PAD, PAD], [2, 6, 6, 3, PAD]])
LENGTHS, ITEMS = torch.tensor([5, 3, 4]), torch.tensor([4, 1, 0])


def build(**settings: object) -> SentenceVae:
    torch.manual_seed(0)
    config = SentenceVaeConfig.model_validate({**tiny_language_tree()["model"], **settings})
    return SentenceVae(config, vocabulary=9).double().eval()


def test_it_reads_and_writes_one_word_after_the_other() -> None:
    vae = build(init_range=0.5)
    encoder, decoder = vae.encoder, vae.decoder
    codes = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    losses = decoder(codes, IDS, LENGTHS)
    state, words = encoder(IDS, LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        embedded = encoder.words(IDS[row, :length])
        _, (hidden, _) = encoder.lstm(embedded.unsqueeze(0))
        torch.testing.assert_close(state[row], hidden[0, 0])
        torch.testing.assert_close(words[row], embedded.mean(dim=0))
        hidden = decoder.start(codes[row]).reshape(1, 1, -1)
        cell, total = torch.zeros_like(hidden), 0.0
        for index in range(length - 1):
            seen = torch.cat([decoder.words(IDS[row, index]), codes[row]]).reshape(1, 1, -1)
            output, (hidden, cell) = decoder.lstm(seen, (hidden, cell))
            total -= decoder.output(output[0, 0]).log_softmax(dim=0)[IDS[row, index + 1]].item()
        assert losses[row].item() == pytest.approx(total, abs=1e-10)
    (slopes,) = torch.autograd.grad(losses[0], codes)
    assert slopes[0].abs().min() > 0
    assert slopes[1:].abs().max() == 0


@pytest.mark.parametrize("posterior", ["gaussian", "implicit"])
def test_padding_does_not_matter_and_weights_begin_in_their_range(posterior: str) -> None:
    vae = build(posterior=posterior, init_range=0.03)
    for name, parameter in vae.named_parameters():
        # The networks of densities begin as usual.
        assert bool((parameter.abs() <= 0.03).all()) is not ("posterior.of_" in name), name
    assert vae.encoder.words.weight.abs().max() > 0.025

    def first(ids: Tensor, lengths: Tensor) -> list[Tensor]:
        torch.manual_seed(1)
        output = vae(ids, lengths, ONE)
        return [output.reconstruction[0], output.words[0], output.latent.centres[0]]

    alone = first(IDS[:1], LENGTHS[:1])
    padded = torch.cat([IDS, torch.full((3, 4), PAD)], dim=1)
    others = torch.cat([IDS, torch.full((3, 4), 8)], dim=1)
    for ids in (padded, others):
        torch.testing.assert_close(first(ids[:1], LENGTHS[:1]), alone)
    torch.testing.assert_close(vae.encoder(padded, LENGTHS), vae.encoder(IDS, LENGTHS))
    codes = torch.randn(3, 4, dtype=torch.float64)
    torch.testing.assert_close(vae.decoder(codes, padded, LENGTHS), vae.decoder(codes, IDS, LENGTHS))


def test_hidden_words_are_unknown_and_only_in_training() -> None:
    decoder = build(word_dropout=0.5).decoder
    ids = torch.tensor([START, *[5] * 400]).unsqueeze(0)
    assert torch.equal(decoder._hidden(ids), ids)
    hidden = decoder.train()._hidden(ids)
    assert hidden[0, 0] == START
    assert set(hidden[0, 1:].tolist()) == {5, UNKNOWN}
    assert 150 < int((hidden == UNKNOWN).sum()) < 250


@pytest.mark.parametrize("weight", [0.0, 0.25])
def test_the_loss_weighs_the_divergence_and_reclaim_s_term(weight: float) -> None:
    vae = build(dropout=0, word_dropout=0)
    config = SentenceVaeConfig.model_validate(tiny_language_tree()["model"])
    settings = ReclaimTermSettings(weight=0.3, neighbours=3, critic_width=4, momentum=1.0)
    task = LanguageModelTask(vae, config, settings, instances=6).double()
    plain = LanguageModelTask(vae, config, None, instances=6)

    def seeded(call: Any, *arguments: Tensor) -> Any:
        torch.manual_seed(1)
        return call(IDS, LENGTHS, *arguments, torch.tensor(weight))

    output = seeded(vae)
    elbo = output.reconstruction + weight * output.latent.kl
    loss, terms = seeded(plain, ITEMS)
    torch.testing.assert_close(loss, elbo.mean())
    assert terms["kl_weight"].item() == weight
    torch.testing.assert_close(terms["reconstruction"], output.reconstruction.mean())
    torch.testing.assert_close(terms["kl"], output.latent.kl.mean())
    assert not any(value.requires_grad for value in terms.values())
    assert task.term is not None
    contrast, _ = task.term(output.latent.codes, output.words, ITEMS)
    before = task.term.second_bank.rows.clone()
    loss, terms = seeded(task.train(), ITEMS)
    torch.testing.assert_close(loss, elbo.mean() + 0.3 * contrast)
    torch.testing.assert_close(terms["reclaim"], contrast.detach())
    task.after_step()
    rows = task.term.second_bank.rows
    torch.testing.assert_close(rows[ITEMS].double(), output.words, check_dtype=False)
    assert torch.equal(rows[[2, 3, 5]], before[[2, 3, 5]])


def test_the_weight_rises_to_its_end_and_begins_again_after_a_cycle() -> None:
    annealing = AnnealingConfig(start=0.1, epochs=2, final=0.8)
    weights = [annealing.weight(step, batches_per_epoch=5) for step in range(12)]
    assert weights == pytest.approx([0.2, 0.3, 0.4, 0.5, 0.6, 0.7, *[0.8] * 6])
    assert max(weights) == 0.8
    annealing = AnnealingConfig(start=0.1, epochs=2, cycle_epochs=3)
    weights = [annealing.weight(step, batches_per_epoch=5) for step in range(30)]
    assert weights[:15] == weights[15:]
    assert weights[14:16] == pytest.approx([1.0, 0.2])


# Figures.


def output(reconstruction: Sequence[float], kl: Sequence[float], centres: Tensor) -> VaeOutput:
    latent = Latent(centres, centres, torch.tensor(kl), torch.tensor(kl) / 2)
    return VaeOutput(torch.tensor(reconstruction), latent, torch.zeros(len(kl), 1))


def test_figures_worked_by_hand() -> None:
    # Two draws of two sentences with 2 and 3 words and ends; then one of one with 4.
    centres = torch.tensor([[0.0, 0.0, 1.0], [0.0, 0.1, 1.3]])
    shift = torch.tensor([2.0, 0.0, 0.0])
    draws = [output([4, 6], [1, 2], centres), output([6, 8], [3, 2], centres + shift)]
    last = [output([9], [1], torch.tensor([[1.1, 0.0, 1.1]]))]
    batches = [(draws, torch.tensor([3, 4])), (last, torch.tensor([5]))]
    # Means over draws: 1, 1, 1.1; 0, .1, 0; and 1, 1.3, 1.1, whose variances are .0022, .0022 and .0156.
    assert figures(batches) == {
        "elbo": pytest.approx(-(21 + 5) / 3),
        "reconstruction": pytest.approx((5 + 7 + 9) / 3),
        "kl": pytest.approx((2 + 2 + 1) / 3),
        "perplexity": pytest.approx(math.exp((21 + 5) / (2 + 3 + 4))),
        "mutual_information": pytest.approx((1 + 1 + 0.5) / 3),
        "active_units": 1,
    }
    batches.append(([output([1e9], [0], torch.zeros(1, 3))], torch.tensor([3])))
    assert math.isfinite(figures(batches)["perplexity"])


@pytest.mark.slow
@pytest.mark.parametrize("posterior", ["gaussian", "implicit"])
def test_a_split_is_measured_alike_each_time_and_whatever_the_batches(posterior: str) -> None:
    sentences = ("a b", "b", "a a c", "c b", "b b b b")
    config = SentenceVaeConfig.model_validate({**tiny_language_tree()["model"], "posterior": posterior})
    vocabulary, fabric = Vocabulary(sentences, 100), Fabric(accelerator="cpu", devices=1)
    torch.manual_seed(0)
    vae = SentenceVae(config, len(vocabulary)).eval()

    def measured(batch_size: int, draws: int) -> dict[str, float]:
        loader = SentenceLoader(sentences, batch_size, vocabulary=vocabulary, max_words=10)
        return measure(vae, fabric, loader, draws=draws, seed=4)

    torch.manual_seed(7)
    once, following = measured(2, 1), torch.rand(())
    torch.manual_seed(7)
    assert torch.equal(following, torch.rand(()))
    assert measured(2, 1) == once
    many, others = measured(5, 200), measured(2, 200)
    for name in ("elbo", "perplexity", "kl"):
        assert many[name] == pytest.approx(others[name], rel=0.02, abs=0.02)


# Whole runs.

STEPS = 12  # two epochs of 48 sentences by 8
KINDS: dict[str, dict[str, Any]] = {
    "gaussian": {},
    "refined": {"refinement": {"steps": 2}},
    "implicit": {"posterior": "implicit"},
}


@pytest.fixture(scope="module")
def sentences(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sentences(tmp_path_factory.mktemp("sentences"))


def run(
    recipe: LanguageModelRecipe, data: Path, out: Path, *, resume: bool = False
) -> TaskResult[dict[str, float]]:
    options = RunOptions(out, resume=resume, device="cpu", show_progress=False)
    return train_language_model(recipe, data, options)


@pytest.fixture(scope="module")
def straight(sentences: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with an implicit posterior and RECLAIM's term that nobody stopped."""
    out = tmp_path_factory.mktemp("straight") / "out"
    run(tiny_language_recipe(reclaim=True, posterior="implicit"), sentences, out)
    return out


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_learns_the_grammar(sentences: Path, tmp_path: Path, kind: str) -> None:
    result = run(tiny_language_recipe(epochs=12, **KINDS[kind]), sentences, tmp_path / "out")
    # Of 13 words and ends alike it would be 13; a code that says nothing leaves it at 1.9 or more.
    assert result.test["perplexity"] < 3.5
    assert result.test.keys() == result.validation.keys()
    validations = [line["elbo"] for line in lines(tmp_path / "out") if line["kind"] == "validation"]
    assert result.validation["elbo"] == max(validations)


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.slow) if kind == "refined" else kind for kind in KINDS]
)
def test_stopped_and_resumed_it_is_bit_equal(
    sentences: Path, straight: Path, tmp_path: Path, kind: str
) -> None:
    recipe, out = tiny_language_recipe(reclaim=True, **KINDS[kind]), tmp_path / "out"
    if kind != "implicit":
        straight = tmp_path / "straight"
        run(recipe, sentences, straight)
    stopped = pytest.raises(TrainingInterruptedError, match=f"after step 9 of {STEPS}.*--resume")
    with before_step(TrainingLoop, 9, terminate), stopped:
        run(recipe, sentences, out)
    torch.manual_seed(99)
    run(recipe, sentences, out, resume=True)
    assert_same_runs(out, straight)


def test_what_a_run_leaves(straight: Path) -> None:
    results = json.loads((straight / "results.json").read_text())
    assert (results["task"], results["steps"], results["vocabulary"]) == ("language-model", STEPS, 4 + 9)
    assert results["examples"] == {"train": 48, "valid": 16, "test": 16}
    training = [line for line in lines(straight) if line["kind"] == "train"]
    assert {"loss", "reconstruction", "kl", "mutual_information", "reclaim"} <= training[0].keys()
    weights = [line["kl_weight"] for line in training]
    assert (weights[0], weights[-1]) == (pytest.approx(0.1 + 1 / 12), 1)
    recipe = tiny_language_recipe(reclaim=True, posterior="implicit")
    assert load_language_recipe(str(straight / "recipe.yaml")) == recipe
    task = load_checkpoint(straight / "checkpoints/last.pt").task
    assert sum(name.endswith("rows") for name in task) == 2


def test_a_share_of_the_sentences_gives_the_words_and_other_data_are_refused(
    sentences: Path, straight: Path, tmp_path: Path
) -> None:
    data = write_sentences(tmp_path / "data")
    for name in ("valid", "test"):
        with (data / f"{name}.txt").open("a") as file:
            file.write("an unseen animal\n" * 3)
    recipe = tiny_language_recipe(epochs=1)
    half = recipe.model_copy(update={"data": recipe.data.model_copy(update={"share": 0.5})})
    run(half, data, tmp_path / "half")
    results = json.loads((tmp_path / "half/results.json").read_text())
    assert results["examples"] == {"train": 24, "valid": 19, "test": 19}
    assert results["vocabulary"] == 4 + 9
    with pytest.raises(TrainingError, match="training data or the encoder are not those"):
        run(tiny_language_recipe(reclaim=True, posterior="implicit"), data, straight, resume=True)
    (data / "test.txt").unlink()
    with pytest.raises(DataError, match=r"test\.txt cannot be read"):
        run(recipe, data, tmp_path / "out")
    assert not (tmp_path / "out").exists()


# Recipes.

RECIPES = {
    name: load_language_recipe(name) for file in language_model_recipes().files for name in file.recipes
}


@pytest.mark.parametrize("name", RECIPES)
def test_settings_and_published_figures_follow_from_the_name(name: str) -> None:
    recipe = RECIPES[name]
    _, data, model = name.replace("::", "-").split("-", 2)
    assert (recipe.model.posterior == "implicit") is model.startswith("ivae")
    assert (recipe.model.refinement is not None) is (model == "sa-vae")
    assert (recipe.kl.cycle_epochs is not None) is model.startswith("cyc-vae")
    assert recipe.kl.final == ({"ptb": 0.5, "yelp": 0.4, "small": 0.5}[data] if model == "beta-vae" else 1.0)
    assert (recipe.reclaim is not None) is model.endswith(("-reclaim", "-cl"))
    if recipe.reclaim is not None:
        plain = ("random", False) if model == "ivae-cl" else ("nearest", True)
        assert recipe.reclaim.weight == 0.1
        assert (recipe.reclaim.negatives, recipe.reclaim.spectral_norm) == plain
    row = published(recipe)
    if data == "small":
        assert row == {}
        return
    assert (recipe.model.latent, recipe.train.batch_size, recipe.train.epochs) == (32, 32, 40)
    assert recipe.model.width == {"ptb": 256, "yelp": 1024}[data]
    assert tuple(row) == NAMES
    # Perplexity is exp(-ELBO / words): most rows agree on the words of a sentence, those of table 7 nearly.
    words = -row["elbo"] / math.log(row["perplexity"])
    assert words == pytest.approx({"ptb": 21.93, "yelp": 96.6}[data], rel=0.035)


@pytest.mark.parametrize(
    "name",
    [name if "::" in name else pytest.param(name, marks=pytest.mark.slow) for name in RECIPES],
)
def test_recipe_s_model_is_built_on_no_device_and_a_small_one_trains(name: str, tmp_path: Path) -> None:
    recipe = RECIPES[name]
    with torch.device("meta"):
        vae = SentenceVae(recipe.model, recipe.model.vocabulary_size)
    assert all(parameter.is_meta for parameter in vae.parameters())
    assert sum(parameter.numel() for parameter in vae.parameters()) > 5e5
    tree: dict[str, Any] = recipe.model_dump(mode="json")
    tree["model"] |= {"word_width": 8, "width": 12, "latent": 4}
    tree["model"]["ratio"]["width"] = 8
    tree["test_draws"] = min(2, recipe.test_draws)
    tree["train"] |= {"batch_size": 8, "epochs": 1, "precision": "fp32"}
    data = write_sentences(tmp_path / "data", train=16, valid=8, test=8)
    result = run(parse_as(LanguageModelRecipe, tree, name), data, tmp_path / "out")
    assert all(math.isfinite(value) for value in result.test.values())

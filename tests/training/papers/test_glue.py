"""GLUE: its tables, metrics and recipes, the rows of a batch, the classifier, and whole runs."""

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.training.models.tiny import TEXT_OPTIONS, tiny_tokenizer, write_tokenizer
from tests.training.papers.samples import text_recipe, tiny_text_recipe, write_sst, write_sts
from tests.training.runs import assert_same_checkpoints, assert_same_runs, before_step, lines, terminate
from training.common.errors import DataError, RecipeError
from training.models.config import TextArchitecture
from training.papers.glue import (
    GLUE,
    Batch,
    ClassifierOutput,
    Example,
    ExampleLoader,
    TextClassifier,
    TextClassifierConfig,
    TextRecipe,
    TextTask,
    classify_texts,
    f1,
    matthews,
    measure,
    pearson,
    published,
    read_glue,
    spearman,
)
from training.papers.load import classification_recipes, load_classification_recipe
from training.papers.reclaim import ReclaimTermSettings
from training.recipes.load import parse_as
from training.trainer.loop import TrainingLoop
from training.trainer.module_task import TaskResult
from training.trainer.opening import RunOptions
from training.trainer.run_state.checkpoint import fingerprint, load_checkpoint
from training.trainer.run_state.errors import TrainingError, TrainingInterruptedError

# Tables.

FILES = {
    "cola": "gj04\t1\t\tOur friends won't buy this analysis.\ngj04\t0\t*\tThe more we study verbs.\n",
    "sst-2": "sentence\tlabel\nhide new secretions \t0\ncontains no wit \t1\n",
    "mrpc": "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    '0\t7\t8\tAmrozi said "he".\tReferring to him.\n1\t7\t8\tone "\ttwo\n',
    "qqp": "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n1\t2\t3\tHow?\tWhy?\t0\n1\t2\t3\ta\tb\t1\n",
    "qnli": "index\tquestion\tsentence\tlabel\n0\tWhen?\tThen.\tnot_entailment\n1\tWho?\tShe.\tentailment\n",
    "mnli": "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\t"
    "sentence1_parse\tsentence2_parse\tsentence1\tsentence2\tlabel1\tgold_label\n"
    "0\t1\t1n\tx\t(\t(\t(\t(\tOne.\tTwo.\tneutral\tcontradiction\n"
    "0\t1\t1n\tx\t(\t(\t(\t(\tOne.\tTwo.\tneutral\tentailment\n",
    "rte": "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tnot_entailment\n1\ta\tb\tentailment\n",
    "wnli": "index\tsentence1\tsentence2\tlabel\n0\ta\tb\t0\n1\ta\tb\t1\n",
    "sts-b": "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore\n"
    "0\tg\tf\t2012\t1\tn\tn\tA plane.\tAn air plane.\t5.000\n0\tg\tf\t2012\t1\tn\tn\ta\tb\t1.25\n",
}
LABELS = {"sts-b": [5.0, 1.25], "cola": [1.0, 0.0]}


def write(folder: Path, content: str | bytes) -> Path:
    (folder / "train.tsv").write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


@pytest.mark.parametrize("name", sorted(GLUE))
def test_reads_every_task_as_published(tmp_path: Path, name: str) -> None:
    table = read_glue(write(tmp_path, FILES[name]), "train", GLUE[name])
    assert [example.label for example in table.items] == LABELS.get(name, [0.0, 1.0])
    assert all((example.second is None) == (name in {"cola", "sst-2"}) for example in table.items)
    assert table.rejections.items == ()


@pytest.mark.parametrize(
    ("task", "content", "examples"),
    [
        (
            "mrpc",
            FILES["mrpc"],
            [Example('Amrozi said "he".', "Referring to him.", 0.0), Example('one "', "two", 1.0)],
        ),
        (
            "sst-2",
            "sentence\tlabel\none\u2028line \x0b with\x85 all\t1\n",
            [Example("one\u2028line \x0b with\x85 all", None, 1.0)],
        ),
        (
            "sst-2",
            "sentence\tlabel\r\ngood\t1\r\nbad\t0",
            [Example("good", None, 1.0), Example("bad", None, 0.0)],
        ),
    ],
)
def test_quotes_are_letters_and_only_tabs_and_line_feeds_divide(
    tmp_path: Path, task: str, content: str, examples: list[Example]
) -> None:
    assert list(read_glue(write(tmp_path, content), "train", GLUE[task]).items) == examples


def test_broken_lines_are_named_by_number_and_stop_above_their_share(tmp_path: Path) -> None:
    lines = [b"good\t1", b"good", b"good\t1\t1", b"", b"good\t2", b" \t1", b"\xff\xfe\t1", b"bad\t0"]
    folder = write(tmp_path, b"sentence\tlabel\n" + b"\n".join(lines) + b"\n")
    table = read_glue(folder, "train", GLUE["sst-2"], max_rejected=0.9)
    assert [example.label for example in table.items] == [1.0, 0.0]
    assert [(item.line, item.reason) for item in table.rejections.items] == [
        (3, "it has 1 values, not 2"),
        (4, "it has 3 values, not 2"),
        (5, "it has 1 values, not 2"),
        (6, "the label '2' is none of 0, 1"),
        (7, "sentence is empty"),
        (8, "it is not UTF-8"),
    ]
    with pytest.raises(DataError, match=r"[Ll]ine 3"):
        read_glue(folder, "train", GLUE["sst-2"], max_rejected=0.1)
    for score in ("nan", "inf", "", "five"):
        write(folder, FILES["sts-b"] + f"0\tg\tf\t2012\t1\tn\tn\ta\tb\t{score}\n")
        table = read_glue(folder, "train", GLUE["sts-b"], max_rejected=0.5)
        assert [item.line for item in table.rejections.items] == [4]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"train\.tsv cannot be read"),
        ("text\tlabel\ngood\t1\n", "no column 'sentence'"),
        ("", "no column"),
        ("sentence\tlabel\n", "no line that can be used"),
    ],
)
def test_files_of_another_kind_are_refused(tmp_path: Path, content: str | None, message: str) -> None:
    folder = tmp_path if content is None else write(tmp_path, content)
    with pytest.raises(DataError, match=message):
        read_glue(folder, "train", GLUE["sst-2"])


def test_fingerprint_knows_texts_labels_and_order() -> None:
    one, other = Example("a", "b", 1.0), Example("a", "b", 0.0)
    prints = {fingerprint(examples) for examples in ([one, other], [other, one], [one], [other], [])}
    assert len(prints) == 5


# Metrics.


@settings(deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=12))
def test_labels_against_counts(pairs: list[tuple[bool, bool]]) -> None:
    predicted, actual = (np.array(column).astype(np.int64) for column in zip(*pairs, strict=True))
    hits = sum(p and a for p, a in pairs)
    alarms = sum(p and not a for p, a in pairs)
    misses = sum(a and not p for p, a in pairs)
    rest = len(pairs) - hits - alarms - misses
    assert f1(predicted, actual) == pytest.approx(2 * hits / max(1, 2 * hits + alarms + misses))
    product = (hits + alarms) * (hits + misses) * (rest + alarms) * (rest + misses)
    expected = (hits * rest - alarms * misses) / math.sqrt(product) if product else 0.0
    with np.errstate(all="raise"):
        assert matthews(predicted, actual) == pytest.approx(expected)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=2, max_size=12))
def test_correlations_against_loops(pairs: list[tuple[int, int]]) -> None:
    left, right = (np.array(column, dtype=np.float64) for column in zip(*pairs, strict=True))

    def ranks(numbers: list[float]) -> list[float]:
        return [
            sum(other < number for other in numbers) + (sum(other == number for other in numbers) + 1) / 2
            for number in numbers
        ]

    def slow(a: list[float], b: list[float]) -> float:
        mean_a, mean_b = sum(a) / len(a), sum(b) / len(b)
        covariance = sum((x - mean_a) * (y - mean_b) for x, y in zip(a, b, strict=True))
        spread = math.sqrt(sum((x - mean_a) ** 2 for x in a) * sum((y - mean_b) ** 2 for y in b))
        return covariance / spread if spread > 1e-12 else 0.0

    with np.errstate(all="raise"):
        assert pearson(left, right) == pytest.approx(slow(left.tolist(), right.tolist()), abs=1e-9)
        expected = slow(ranks(left.tolist()), ranks(right.tolist()))
        assert spearman(left, right) == pytest.approx(expected, abs=1e-9)


def test_every_task_has_its_metrics() -> None:
    logits, scores = np.array([[2.0, 1.0], [0.0, 3.0]]), np.array([[0.1], [0.4], [0.3]])
    assert measure(GLUE["mrpc"], logits, np.array([0.0, 1.0])) == {"f1": 1.0, "accuracy": 1.0}
    figures = measure(GLUE["cola"], logits, np.array([1.0, 0.0]))
    assert figures == {"matthews": pytest.approx(-1), "accuracy": 0}
    figures = measure(GLUE["sts-b"], scores, np.array([0.0, 5.0, 4.0]))
    assert figures["spearman"] == pytest.approx(1.0)
    assert 0.9 < figures["pearson"] < 1
    # The first one chooses the checkpoint.
    assert [GLUE[name].metrics[0] for name in ("mrpc", "qqp", "cola")] == ["f1", "accuracy", "matthews"]


# Rows.

LONG, SHORT = "x-ray " * 20, "the heart"
TOKENIZER = tiny_tokenizer()


def words(text: str) -> list[int]:
    return list(TOKENIZER.encode([text])[0].ids[1:-1])


def batch(*examples: Example, limit: int = 32, separators: int = 1) -> Batch:
    loader = ExampleLoader(
        examples, batch_size=8, tokenizer=TOKENIZER, max_tokens=limit, separators=separators
    )
    return loader.batch(range(len(examples)))


def row(first: str, second: str | None, **limits: int) -> tuple[list[int], list[int]]:
    rows = batch(Example(first, second, 0), **limits)
    assert rows.attention_mask.all()
    return rows.input_ids[0].tolist(), rows.segments[0].tolist()


@pytest.mark.parametrize("separators", [1, 2])
def test_one_text_is_as_the_tokenizer_has_it_and_two_are_divided(separators: int) -> None:
    whole = TOKENIZER.encode([SHORT])[0].ids
    assert row(SHORT, None, separators=separators) == (whole, [0] * len(whole))
    start, end = whole[0], whole[-1]
    left, right = [start, *words("a cat"), *[end] * separators], [*words("two dogs"), end]
    expected = [*left, *right], [0] * len(left) + [1] * len(right)
    assert row("a cat", "two dogs", separators=separators) == expected


@pytest.mark.parametrize(("first", "second"), [(LONG, SHORT), (SHORT, LONG), (LONG, LONG), (LONG, None)])
@pytest.mark.parametrize("limit", [24, 25])
def test_the_longer_text_is_cut_at_its_end(first: str, second: str | None, limit: int) -> None:
    ids, segments = row(first, second, limit=limit)
    assert len(ids) == limit
    assert ids[-1] == TOKENIZER.eos_id
    left = [token for token, segment in zip(ids, segments, strict=True) if segment == 0][1:]
    left = left[: left.index(TOKENIZER.eos_id)]
    right = [token for token, segment in zip(ids, segments, strict=True) if segment == 1][:-1]
    for text, kept in ((first, left), (second or "", right)):
        assert kept == words(text)[: len(kept)]
        if text == SHORT:
            assert kept == words(SHORT)
    if first == second:
        assert abs(len(left) - len(right)) <= 1


def test_rows_are_padded_and_masked_and_have_their_labels() -> None:
    examples = Example("a", "b", 3.0), Example(SHORT, "a much longer second text", 0.5)
    rows = batch(*examples, limit=64)
    short = int(rows.attention_mask[0].sum())
    assert rows.input_ids.shape == rows.segments.shape == rows.attention_mask.shape
    assert short < rows.input_ids.shape[1]
    assert set(rows.input_ids[0, short:].tolist()) == {TOKENIZER.pad_id}
    assert not rows.segments[0, short:].any()
    loader = ExampleLoader(examples, batch_size=2, tokenizer=TOKENIZER, max_tokens=64)
    turned = loader.batch([1, 0])
    assert (turned.labels.tolist(), turned.items.tolist()) == ([0.5, 3.0], [1, 0])
    assert torch.equal(turned.input_ids.flip(0), rows.input_ids)
    assert [loader.length(index) for index in range(2)] == [2, len(SHORT) + 25]


# The model.

ARCHITECTURES: tuple[TextArchitecture, ...] = ("bert", "distilbert", "roberta", "small_transformer")
EXAMPLES = (Example("a cat", "two dogs run", 0), Example("the heart is enlarged", "x-ray", 1))


def build(architecture: TextArchitecture = "bert", outputs: int = 2, **changes: Any) -> TextClassifier:
    torch.manual_seed(0)
    options = TEXT_OPTIONS[architecture] | ({"type_vocab_size": 1} if architecture == "roberta" else {})
    content = {"architecture": architecture, "options": options, "max_tokens": 32, **changes}
    config = TextClassifierConfig.model_validate(content)
    return TextClassifier(config, TOKENIZER, outputs, load=False).eval()


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("pooling", ["cls", "mean", "max"])
def test_padding_has_no_influence(architecture: TextArchitecture, pooling: str) -> None:
    model = build(architecture, pooling=pooling)
    together: ClassifierOutput = model(*batch(*EXAMPLES)[:3])
    for index, example in enumerate(EXAMPLES):
        for ours, theirs in zip(model(*batch(example)[:3]), together, strict=True):
            torch.testing.assert_close(ours[0], theirs[index], rtol=0, atol=1e-5)
    assert together.logits.shape == (2, 2)
    assert together.words.shape == together.sentence.shape == (2, model.tower.width)


def test_words_are_what_the_embedding_layer_gives_and_learn() -> None:
    model, rows = build("small_transformer"), batch(*EXAMPLES)
    embeddings = model.tower.backbone.stem()[0]
    mask = rows.attention_mask.unsqueeze(-1)
    expected = (embeddings(rows.input_ids) * mask).sum(dim=1) / mask.sum(dim=1)
    output = model(*rows[:3])
    torch.testing.assert_close(output.words, expected)
    torch.autograd.backward(output.words.sum())
    assert any(parameter.grad is not None for parameter in embeddings.parameters())


def test_only_bert_tells_the_second_text_by_its_segment() -> None:
    ids, mask, segments, *_ = batch(*EXAMPLES)
    for architecture in ARCHITECTURES:
        model = build(architecture)
        ours, same = model(ids, mask, segments).logits, model(ids, mask, torch.zeros_like(segments)).logits
        assert torch.allclose(ours, same, atol=1e-6) is not (architecture == "bert")


def test_more_tokens_than_the_backbone_reads_are_refused() -> None:
    with pytest.raises(RecipeError, match=r"model\.max_tokens"):
        build("small_transformer", max_tokens=200)


def test_the_loss_and_reclaim_s_term_with_its_weight() -> None:
    def task(model: TextClassifier, *, regression: bool = False, weight: float = 0.0) -> TextTask:
        term = ReclaimTermSettings(weight=weight, neighbours=2, critic_width=4) if weight else None
        return TextTask(model, regression=regression, reclaim=term, instances=5)

    rows = batch(*EXAMPLES)._replace(items=torch.tensor([3, 1]))
    model = build("small_transformer")
    total, terms = task(model).eval()(*rows)
    assert terms.keys() == {"task"}
    expected = torch.nn.functional.cross_entropy(model(*rows[:3]).logits, torch.tensor([0, 1]))
    torch.testing.assert_close(total, expected)
    with_term = task(model, weight=0.7).eval()
    memory = with_term.term
    assert memory is not None
    weighted, terms = with_term(*rows)
    torch.testing.assert_close(weighted, total + 0.7 * terms["reclaim"])
    output = model(*rows[:3])
    contrast, _ = memory(output.sentence, output.words, rows.items)
    torch.testing.assert_close(terms["reclaim"], contrast.detach())
    before = memory.first_bank.rows.clone()
    with_term.train()(*rows)
    with_term.after_step()
    moved = (memory.first_bank.rows != before).any(dim=1)
    assert moved.tolist() == [False, True, False, True, False]
    scorer, scores = build(outputs=1), torch.tensor([1.5, 4.0])
    squared, _ = task(scorer, regression=True)(*rows._replace(labels=scores))
    torch.testing.assert_close(squared, (scorer(*rows[:3]).logits[:, 0] - scores).square().mean())


# Whole runs.

STEPS = 12  # two epochs of the 48 examples of 64 that are not held out, by 8


@pytest.fixture(scope="module")
def sst(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sst(tmp_path_factory.mktemp("sst"))


def run(recipe: TextRecipe, data: Path, out: Path, *, resume: bool = False) -> TaskResult[dict[str, float]]:
    return classify_texts(recipe, data, RunOptions(out, resume=resume, device="cpu", show_progress=False))


@pytest.fixture(scope="module")
def straight(sst: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with RECLAIM's term that nobody stopped."""
    out = tmp_path_factory.mktemp("straight") / "out"
    run(tiny_text_recipe(reclaim=True), sst, out)
    return out


@pytest.mark.parametrize("reclaim", [False, True])
def test_learns_an_easy_rule(sst: Path, tmp_path: Path, reclaim: bool) -> None:
    result = run(tiny_text_recipe(reclaim=reclaim, epochs=6), sst, tmp_path / "out")
    assert result.test["accuracy"] >= 0.9


def test_learns_scores_of_pairs(tmp_path: Path) -> None:
    data = write_sts(tmp_path / "data")
    result = run(tiny_text_recipe("sts-b", reclaim=True, epochs=6), data, tmp_path / "out")
    assert result.test["pearson"] > 0.5
    assert result.test.keys() == {"pearson", "spearman"}


@pytest.mark.parametrize("step", [6, 9])
def test_stopped_and_resumed_it_is_bit_equal(sst: Path, straight: Path, tmp_path: Path, step: int) -> None:
    recipe, out = tiny_text_recipe(reclaim=True), tmp_path / "out"
    stopped = pytest.raises(TrainingInterruptedError, match=f"after step {step} of {STEPS}.*--resume")
    with before_step(TrainingLoop, step, terminate), stopped:
        run(recipe, sst, out)
    assert not (out / "results.json").exists()
    torch.manual_seed(99)
    run(recipe, sst, out, resume=True)
    assert_same_runs(out, straight)


def test_what_a_run_leaves(sst: Path, straight: Path, tmp_path: Path) -> None:
    results = json.loads((straight / "results.json").read_text())
    assert results["task"] == "sst-2"
    assert results["examples"] == {"train": 48, "validation": 16, "dev": 16}
    assert results["steps"] == STEPS
    validations = [line for line in lines(straight) if line["kind"] == "validation"]
    assert [line["step"] for line in validations] == [6, 12]
    assert results["validation"]["accuracy"] == max(line["accuracy"] for line in validations)
    assert results["metrics"].keys() == {"accuracy"}
    training = [line for line in lines(straight) if line["kind"] == "train"]
    assert {"loss", "task", "reclaim", "learning_rate"} <= training[0].keys()
    assert load_classification_recipe(str(straight / "recipe.yaml")) == tiny_text_recipe(reclaim=True)
    weights = load_checkpoint(straight / "checkpoints/last.pt").task
    assert sum(name.endswith("rows") for name in weights) == 2
    run(tiny_text_recipe(), sst, tmp_path / "out")
    without = load_checkpoint(tmp_path / "out/checkpoints/last.pt").task
    tokens = "classifier.tower.backbone.embeddings.tokens.weight"
    assert not torch.allclose(weights[tokens], without[tokens], atol=1e-4)


def test_the_development_set_is_reported_and_chooses_nothing(
    sst: Path, straight: Path, tmp_path: Path
) -> None:
    """With its labels turned round, weights and choice are the same, and the report is another."""
    header, *rows = (sst / "dev.tsv").read_text().splitlines()
    data = tmp_path / "data"
    data.mkdir()
    (data / "train.tsv").write_bytes((sst / "train.tsv").read_bytes())
    turned = [header, *(f"{row[:-1]}{1 - int(row[-1])}" for row in rows)]
    (data / "dev.tsv").write_text("\n".join(turned) + "\n")
    result = run(tiny_text_recipe(reclaim=True), data, tmp_path / "out")
    assert_same_checkpoints(tmp_path / "out", straight)
    before = json.loads((straight / "results.json").read_text())
    assert result.validation == before["validation"]
    assert result.test["accuracy"] == pytest.approx(1 - before["metrics"]["accuracy"])


def test_several_development_sets_are_measured_by_name(tmp_path: Path) -> None:
    columns = "sentence1\tsentence2\tgold_label"
    rows = [
        f"a good film {number}\tit is {word}\t{label}"
        for number in range(4)
        for word, label in (("good", "entailment"), ("bad", "neutral"))
    ]
    for name in ("train", "dev_matched", "dev_mismatched"):
        (tmp_path / f"{name}.tsv").write_text("\n".join([columns, *rows]) + "\n")
    result = run(tiny_text_recipe("mnli"), tmp_path, tmp_path / "out")
    assert result.test.keys() == {"dev_matched/accuracy", "dev_mismatched/accuracy"}


def test_broken_lines_are_counted_and_missing_files_and_other_data_refused(
    straight: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = write_sst(tmp_path / "data", train=200)
    with (data / "train.tsv").open("a") as file:
        file.write("no label\n")
    result = run(tiny_text_recipe(epochs=1, batch_size=64), data, tmp_path / "out")
    assert result.rejected == 1
    assert "Line 202" in caplog.text
    assert json.loads((tmp_path / "out/results.json").read_text())["rejected"] == 1
    with pytest.raises(TrainingError, match="training data or the encoder are not those"):
        run(tiny_text_recipe(reclaim=True), data, straight, resume=True)
    with pytest.raises(DataError, match=r"train\.tsv"):
        run(tiny_text_recipe(), tmp_path / "nowhere", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_pretrained_folder_is_fine_tuned(sst: Path, tmp_path: Path) -> None:
    from transformers import BertConfig, BertModel

    folder = tmp_path / "bert"
    sizes: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = BertModel(BertConfig(vocab_size=300, intermediate_size=32, **sizes))
    model.save_pretrained(folder)
    write_tokenizer(folder)
    tree = tiny_text_recipe(reclaim=True, epochs=1).model_dump(mode="json")
    tree["model"] |= {"architecture": "bert", "pretrained": str(folder), "options": {}}
    tree["optimizer"]["lr"] = 1e-9
    run(parse_as(TextRecipe, tree, "Recipe"), sst, tmp_path / "out")
    name = "embeddings.word_embeddings.weight"
    weights = load_checkpoint(tmp_path / "out/checkpoints/last.pt").task
    (tuned,) = (value for key, value in weights.items() if key.endswith(name))
    torch.testing.assert_close(tuned, model.state_dict()[name])


# Recipes and published figures.

# A task of classes, and the one of scores: of the others recipes do the same.
RECIPES = {
    name: text_recipe(name)
    for file in classification_recipes().files
    for name in file.recipes
    if "::cola" in name or "::sts-b" in name
}
# The architecture behind a name on the hub, where it differs from its kind's own defaults.
HUB_OPTIONS: Mapping[str, dict[str, Any]] = {
    "google-bert/bert-base-uncased": {},
    "google-bert/bert-large-uncased": {
        "hidden_size": 1024,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "intermediate_size": 4096,
    },
    "FacebookAI/roberta-base": {"vocab_size": 50265, "max_position_embeddings": 514, "pad_token_id": 1},
}


def one_of_each(kinds: Mapping[str, str]) -> list[str]:
    """The first recipe of each kind."""
    return list({kind: name for name, kind in reversed(list(kinds.items()))}.values())


def kind(recipe: TextRecipe) -> str:
    """What a recipe does, numbers aside: its model, its term, and whether it gives classes or a score."""
    term = recipe.reclaim and (recipe.reclaim.negatives, recipe.reclaim.spectral_norm)
    return repr((recipe.model, term, recipe.task == "sts-b", recipe.data.share < 1))


KINDS = one_of_each({name: kind(recipe) for name, recipe in RECIPES.items()})


@pytest.mark.parametrize("task", sorted(GLUE))
def test_settings_of_reclaim_s_paper(task: str) -> None:
    recipe, base = text_recipe(f"glue-bert-reclaim::{task}"), text_recipe(f"glue-bert-base::{task}")
    term = recipe.reclaim
    assert term is not None
    assert (term.neighbours, term.weight, term.critic_width) == (100, 0.1, 64)
    assert (recipe.train.batch_size, recipe.train.epochs, recipe.optimizer.lr) == (32, 3, 2e-5)
    changes = {"reclaim": None, "name": base.name, "description": base.description}
    assert recipe.model_copy(update=changes) == base


def test_recipes_have_the_task_term_and_share_of_their_name() -> None:
    assert {recipe.model.pretrained for recipe in RECIPES.values()} - {None} == set(HUB_OPTIONS)
    for name, recipe in RECIPES.items():
        assert f"::{recipe.task}" in name
        with_term = "reclaim" in name or name.startswith(("glue-weight", "glue-neighbours"))
        assert with_term is (recipe.reclaim is not None)
        if name.startswith("glue-share-"):
            assert recipe.data.share == float(name.rpartition("-")[2])
            assert recipe.reclaim is None or recipe.reclaim.neighbours == 10


@pytest.mark.parametrize("name", one_of_each({name: repr(recipe.model) for name, recipe in RECIPES.items()}))
def test_model_of_a_recipe_is_built_on_no_device(name: str) -> None:
    model = RECIPES[name].model
    options = {**HUB_OPTIONS.get(model.pretrained or "", {}), **model.options}
    config = model.model_copy(update={"pretrained": None, "options": options})
    with torch.device("meta"):
        classifier = TextClassifier(config, TOKENIZER, outputs=2, load=False)
    assert all(parameter.is_meta for parameter in classifier.parameters())
    assert sum(parameter.numel() for parameter in classifier.parameters()) > 3e5


@pytest.mark.parametrize(
    "name", [name if name in KINDS else pytest.param(name, marks=pytest.mark.slow) for name in RECIPES]
)
def test_recipe_trains(name: str, tmp_path: Path) -> None:
    """Two steps with a model of a few numbers, on lines of a task of classes or of scores, end in figures."""
    recipe = RECIPES[name]
    tree = recipe.model_dump(mode="json")
    tree["task"] = "sts-b" if recipe.task == "sts-b" else "sst-2"
    tree["model"] |= {"pretrained": None, "options": TEXT_OPTIONS[recipe.model.architecture]}
    tree["model"] |= {"vocabulary_size": 320, "max_tokens": 24}
    tree["train"] |= {"batch_size": 8, "epochs": 1, "precision": "fp32"}
    tree["data"]["share"] = 1.0 if recipe.data.share == 1 else 0.5
    write = write_sts if recipe.task == "sts-b" else write_sst
    data = write(tmp_path / "data", train=18 if recipe.data.share == 1 else 36, dev=8)
    result = run(parse_as(TextRecipe, tree, name), data, tmp_path / "out")
    assert result.test
    assert all(math.isfinite(value) for value in result.test.values())


@pytest.mark.parametrize("task", sorted(GLUE))
def test_every_published_row_has_a_figure_for_each_name(task: str) -> None:
    rows = published(text_recipe(f"glue-bert-base::{task}"))
    backbones = ("BERT-base", "RoBERTa-base", "BERT-large")
    assert list(rows) == [row for name in backbones for row in (name, f"{name} + RECLAIM")]
    metrics, sets = GLUE[task].metrics, GLUE[task].dev
    names = [f"{name}/{metric}" for name in sets for metric in metrics] if len(sets) > 1 else list(metrics)
    for name in backbones:
        base, reclaim = rows[name], rows[f"{name} + RECLAIM"]
        assert list(base) == list(reclaim) == (["matthews"] if task == "cola" else names)
        assert all(reclaim[metric] >= base[metric] for metric in base)


@pytest.mark.parametrize("task", ["cola", "sst-2", "sts-b", "mnli", "qnli", "mrpc", "qqp"])
def test_a_share_has_its_own_figures_as_the_tables_have_them(task: str) -> None:
    page = (Path(__file__).parents[3] / "docs" / "research" / "recipes.md").read_text()
    for term, row in (("base", "BERT-base"), ("reclaim", "BERT-base + RECLAIM")):
        found = re.search(rf"`glue-share-{term}::{task}-.*` \| (.*) \|", page)
        assert found is not None
        shares = "0.01", "0.05", "0.1", "0.2", "0.3", "0.5"
        for share, figures in zip(shares, found[1].split(", "), strict=True):
            rows = published(text_recipe(f"glue-share-{term}::{task}-{share}"))
            assert list(rows) == ["BERT-base", "BERT-base + RECLAIM"]
            # The paper has MRPC's accuracy first.
            expected = [float(figure) for figure in figures.split("/")]
            assert list(rows[row].values()) == (expected[::-1] if task == "mrpc" else expected)


@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        ("glue-share-base::rte-0.1", []),
        ("glue-small-base::cola", []),
        ("glue-weight::cola-0.5", []),
        ("glue-neighbours::cola-10", []),
        ("glue-bert-reclaim-cl::cola", []),
        ("glue-bert-base::cola", ["data.share=0.4"]),
    ],
)
def test_the_tables_have_no_row_for_other_settings(name: str, overrides: list[str]) -> None:
    assert published(text_recipe(name, overrides)) == {}

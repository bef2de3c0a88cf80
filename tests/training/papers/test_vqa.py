"""VQA: answers, folders, bilinear attention, the loss, recipes, and whole runs."""

import json
import logging
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor

from tests.training.conversion import folders
from tests.training.models.tiny import IMAGE_OPTIONS, tiny_tokenizer
from tests.training.papers.samples import (
    annotation,
    tiny_question_recipe,
    tiny_question_tree,
    write_part,
    write_vqa,
)
from tests.training.runs import assert_same_checkpoints, assert_same_runs, before_step, lines, terminate
from training.common.errors import DataError, RecipeError
from training.models.config import TextPreprocessingConfig
from training.models.preprocessing import TextPreprocessing
from training.papers.load import classification_recipes, load_classification_recipe
from training.papers.reclaim import ReclaimTermSettings
from training.papers.vqa import (
    AnswerModel,
    AnswerModelConfig,
    AnswerTask,
    BilinearAttention,
    Question,
    QuestionLoader,
    QuestionRecipe,
    answer_questions,
    answer_vocabulary,
    normalised,
    open_question_images,
    published,
    read_questions,
    soft_scores,
)
from training.recipes.load import parse_as
from training.trainer.loop import TrainingLoop
from training.trainer.module_task import TaskResult
from training.trainer.opening import RunOptions, open_run
from training.trainer.run_state.errors import TrainingError, TrainingInterruptedError

# Answers and folders.


@pytest.mark.parametrize(
    ("answer", "form"),
    [
        ("The Dog.", "dog"),
        ("two", "2"),
        ("None", "0"),
        ("a red, blue and white flag", "red blue and white flag"),
        ("1,000", "1000"),
        ("3.5 feet", "3.5 feet"),
        ("t-shirt/jeans", "t shirt jeans"),
        ("one-way", "1 way"),
        ("don't know", "don't know"),
        ("  ", ""),
    ],
)
def test_answers_are_brought_to_one_form(answer: str, form: str) -> None:
    assert normalised(answer) == normalised(form) == form


def test_usual_answers_are_those_of_enough_questions_the_most_usual_first() -> None:
    most_frequent = ["yes"] * 4 + ["no"] * 3 + ["2"] * 3 + ["blue"] * 2
    assert answer_vocabulary(most_frequent, 3) == ("yes", "2", "no")
    with pytest.raises(DataError, match=r"Fewer than two answers occur 4 times.*data\.min_answer_count"):
        answer_vocabulary(most_frequent, 4)


def test_three_people_make_an_answer_right() -> None:
    given = ["yes"] * 5 + ["no"] * 2 + ["maybe"] + ["unusual"] * 2
    scores = soft_scores(given, {"no": 0, "yes": 1, "maybe": 2, "never": 3})
    assert scores.tolist() == pytest.approx([2 / 3, 1, 1 / 3, 0])


def test_questions_have_their_image_and_answers_and_broken_ones_are_left_out(tmp_path: Path) -> None:
    questions = read_questions(write_vqa(tmp_path, train=2), "train2014").items
    assert len(questions) == 4
    answers = ("green", "green", "green", "strange answer")
    path = "train2014/COCO_train2014_000000000001.jpg"
    assert questions[3] == Question(path, "What colour is it?", answers, "green")
    assert questions[2].answer == "yes"
    good = {"image_id": 0, "question": "Is it bright?", "question_id": 0}
    changes: list[dict[str, Any]] = [{"question": " "}, {"image_id": 9}, {"question_id": 5}]
    broken: list[Any] = [*({**good, **change} for change in changes), {}, 7]
    write_part(tmp_path, "train2014", [good, *broken], [annotation(0, ["yes"]), {"question_id": 5}])
    usable = read_questions(tmp_path, "train2014", max_rejected=1)
    assert len(usable.items) == 1
    assert [(item.line, item.reason) for item in usable.rejections.items] == [
        (2, "it asks nothing"),
        (3, "there is no image train2014/COCO_train2014_000000000009.jpg"),
        (4, "its annotation has no answers"),
        (5, "it names no image"),
        (6, "it names no image"),
    ]
    with pytest.raises(DataError, match="Too much"):
        read_questions(tmp_path, "train2014", max_rejected=0.01)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("v2_mscoco_val2014_annotations.json", None, "cannot be read"),
        ("v2_mscoco_val2014_annotations.json", "{", "is not JSON"),
        ("v2_mscoco_val2014_annotations.json", "[]", "no list 'annotations'"),
        ("v2_mscoco_val2014_annotations.json", '{"annotations": 3}', "no list 'annotations'"),
        ("v2_OpenEnded_mscoco_val2014_questions.json", '{"questions": []}', "has no question"),
    ],
)
def test_a_wrong_file_is_named(tmp_path: Path, name: str, content: str | None, message: str) -> None:
    path = write_vqa(tmp_path, val=1) / name
    path.unlink()
    if content is not None:
        path.write_text(content)
    with pytest.raises(DataError, match=rf"{name}.*{message}"):
        read_questions(tmp_path, "val2014")


# The model.

WORDS = torch.tensor([[True, True, False], [True, False, False]])


def attention_and_inputs() -> tuple[BilinearAttention, Tensor, Tensor]:
    """In float64: attention, regions and words."""
    torch.manual_seed(0)
    attention = BilinearAttention(5, 6, 2, dropout=0.2, last_dropout=0.5).double().eval()
    generator = torch.Generator().manual_seed(1)
    regions = torch.randn(2, 4, 5, generator=generator, dtype=torch.float64)
    return attention, regions, torch.randn(2, 3, 6, generator=generator, dtype=torch.float64)


def test_bilinear_attention_against_one_pair_at_a_time() -> None:
    attention, regions, words = attention_and_inputs()
    found = attention.maps(regions, words, WORDS)
    form = attention.maps.form.weight
    assert isinstance(form, Tensor)
    for row, count in enumerate((2, 1)):
        state = words[row, :count]
        pairs = [(region, word) for region in range(4) for word in range(count)]
        for glimpse in range(2):
            left, right = attention.maps.region(regions[row]), attention.maps.word(words[row])
            scores = [(form[glimpse] * left[r] * right[w]).sum().exp().item() for r, w in pairs]
            for (region, word), score in zip(pairs, scores, strict=True):
                weight = found[row, glimpse, region, word].item()
                assert weight == pytest.approx(score / sum(scores), abs=1e-12)
            left, right = attention.regions[glimpse](regions[row]), attention.words[glimpse](state)
            read = sum(found[row, glimpse, r, w] * left[r] * right[w] for r, w in pairs)
            state = state + attention.joined[glimpse](read)
        torch.testing.assert_close(attention(regions, words, WORDS)[row], state.sum(dim=0))
    assert found[1, :, :, 1:].abs().max() == 0


def test_padding_and_the_order_of_regions_do_not_matter_and_gradients_are_right() -> None:
    attention, regions, words = attention_and_inputs()
    found = attention(regions, words, WORDS)
    others = words.masked_fill(~WORDS.unsqueeze(-1), 7.0)
    torch.testing.assert_close(attention(regions[:, [3, 1, 0, 2]], others, WORDS), found)
    inputs = [regions.requires_grad_(), words.requires_grad_()]
    assert torch.autograd.gradcheck(lambda left, right: attention(left, right, WORDS), inputs)
    found.square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in attention.parameters())


PIXELS = torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(2))
IDS, MASK = torch.tensor([[1, 9, 2], [1, 8, 2], [1, 2, 0]]), torch.tensor([[1, 1, 1], [1, 1, 1], [1, 1, 0]])
SCORES = torch.tensor([[1.0, 0.0, 0.3], [0.0, 0.0, 0.0], [0.0, 1.0, 0.6]])
ITEMS = torch.tensor([4, 0, 2])
IMAGES = (0, 0, 1, 1, 2)
TERM = ReclaimTermSettings(weight=0.5, neighbours=2, critic_width=4)


def build(reclaim: ReclaimTermSettings | None = None, **image: Any) -> AnswerTask:
    torch.manual_seed(0)
    tree = tiny_question_tree()["model"] | {"dropout": 0, "last_dropout": 0}
    tree["image"] = {**tree["image"], **image}
    model = AnswerModel(AnswerModelConfig.model_validate(tree), tiny_tokenizer(), 3, load=False)
    return AnswerTask(model, reclaim, IMAGES).eval()


def test_the_loss_is_summed_over_answers_and_the_mean_over_questions() -> None:
    task = build()
    logits = task.model(PIXELS, IDS, MASK).logits
    chances = logits.double().sigmoid()
    expected = -(SCORES * chances.log() + (1 - SCORES) * (1 - chances).log()).sum().item() / 3
    loss, terms = task(PIXELS, IDS, MASK, SCORES, ITEMS)
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    assert terms["task"].item() == loss.item()
    # A padded question is the same question.
    torch.testing.assert_close(logits[2:], task.model(PIXELS[2:], IDS[2:, :2], MASK[2:, :2]).logits)


def test_reclaim_s_term_is_that_of_question_and_image() -> None:
    task = build(TERM)
    assert task.term is not None
    output = task.model(PIXELS, IDS, MASK)
    assert output.question.shape == (3, 12)
    assert output.image.shape == (3, 16)
    contrast, _ = task.term(output.question, output.image, ITEMS)
    loss, terms = task(PIXELS, IDS, MASK, SCORES, ITEMS)
    torch.testing.assert_close(loss, terms["task"] + 0.5 * contrast)
    assert task.term.first_bank.groups.tolist() == list(IMAGES)


@pytest.mark.parametrize("frozen", [True, False])
def test_a_frozen_tower_keeps_weights_and_statistics(frozen: bool) -> None:
    task = build(TERM, frozen=frozen).train()
    before = {name: value.clone() for name, value in task.tower.state_dict().items()}
    loss, _ = task(PIXELS, IDS, MASK, SCORES, ITEMS)
    loss.backward()
    after = task.tower.state_dict()
    assert all(torch.equal(before[name], value) for name, value in after.items()) is frozen
    assert all(parameter.grad is None for parameter in task.tower.parameters()) is frozen
    assert all(parameter.grad is not None for parameter in task.model.attention.parameters())


# Whole runs.

STEPS = 8  # two epochs of the 48 questions of 64 that are not held out, by 12


@pytest.fixture(scope="module")
def squares(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_vqa(tmp_path_factory.mktemp("vqa") / "data")


def run(
    recipe: QuestionRecipe, data: Path, out: Path, *, resume: bool = False
) -> TaskResult[dict[str, float]]:
    return answer_questions(recipe, data, RunOptions(out, resume=resume, device="cpu", show_progress=False))


@pytest.fixture(scope="module")
def straight(squares: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with RECLAIM's term that nobody stopped."""
    out = tmp_path_factory.mktemp("straight") / "out"
    run(tiny_question_recipe(reclaim=True), squares, out)
    return out


@pytest.mark.slow
def test_learns_to_look_where_it_is_asked(tmp_path: Path) -> None:
    data = write_vqa(tmp_path / "data", train=85)
    result = run(tiny_question_recipe(reclaim=True, epochs=10), data, tmp_path / "out")
    # Of an image alone, and of a question alone, half of the answers are right.
    assert result.test["vqa_score"] > 0.7
    assert result.test["attainable"] == 1


def test_stopped_and_resumed_it_is_bit_equal(squares: Path, straight: Path, tmp_path: Path) -> None:
    recipe, out = tiny_question_recipe(reclaim=True), tmp_path / "out"
    stopped = pytest.raises(TrainingInterruptedError, match=f"after step 5 of {STEPS}.*--resume")
    with before_step(TrainingLoop, 5, terminate), stopped:
        run(recipe, squares, out)
    torch.manual_seed(99)
    run(recipe, squares, out, resume=True)
    assert_same_runs(out, straight)


def test_what_a_run_leaves(straight: Path) -> None:
    results = json.loads((straight / "results.json").read_text())
    assert (results["task"], results["answers"], results["steps"]) == ("vqa", 4, STEPS)
    assert results["examples"] == {"train": 48, "validation": 16, "val2014": 16}
    assert {"loss", "task", "reclaim"} <= lines(straight)[0].keys()
    assert load_classification_recipe(str(straight / "recipe.yaml")) == tiny_question_recipe(reclaim=True)


def test_val2014_is_reported_and_chooses_nothing(squares: Path, straight: Path, tmp_path: Path) -> None:
    """With answers that nobody gave there, weights and choice are the same, and the report is another."""
    data = tmp_path / "data"
    shutil.copytree(squares, data)
    path = data / "v2_mscoco_val2014_annotations.json"
    path.write_text(path.read_text().replace('"no"', '"yes"').replace('"green"', '"red"'))
    result = run(tiny_question_recipe(reclaim=True), data, tmp_path / "out")
    assert_same_checkpoints(tmp_path / "out", straight)
    before = json.loads((straight / "results.json").read_text())
    assert result.validation == before["validation"]
    assert result.test != before["metrics"]


def test_kept_and_streamed_images_train_alike_without_broken_ones(tmp_path: Path) -> None:
    data = write_vqa(tmp_path / "data")
    kept, streamed = (tiny_question_recipe(cache=cache, epochs=1) for cache in (True, False))
    results = [run(recipe, data, tmp_path / f"whole{index}") for index, recipe in enumerate((kept, streamed))]
    assert results[0].test == results[1].test
    losses = [[line.get("loss") for line in lines(tmp_path / f"whole{index}")] for index in range(2)]
    assert losses[0] == losses[1]
    (data / "train2014/COCO_train2014_000000000003.jpg").write_bytes(b"no image")
    for index, recipe in enumerate((kept, streamed)):
        strict = recipe.model_copy(update={"data": recipe.data.model_copy(update={"max_rejected": 0.01})})
        with pytest.raises(DataError, match="Too much of the images"):
            run(strict, data, tmp_path / f"strict{index}")
        assert run(recipe, data, tmp_path / f"broken{index}").rejected == 1
    for image in (data / "val2014").iterdir():
        image.write_bytes(b"no image")
    with pytest.raises(DataError, match="No image of a part of the questions can be read"):
        run(kept, data, tmp_path / "none")


def test_what_cannot_be_trained_or_resumed_is_refused(squares: Path, straight: Path, tmp_path: Path) -> None:
    other = write_vqa(tmp_path / "other", train=20)
    with pytest.raises(TrainingError, match="training data or the encoder are not those"):
        run(tiny_question_recipe(reclaim=True), other, straight, resume=True)
    recipe = tiny_question_recipe()
    one_left = recipe.model_copy(update={"train": recipe.train.model_copy(update={"batch_size": 47})})
    with pytest.raises(RecipeError, match="batch norm"):
        run(one_left, squares, tmp_path / "one")


def test_the_largest_batch_has_the_longest_questions(tmp_path: Path) -> None:
    """Made without a file of an image."""
    data, recipe = write_vqa(tmp_path / "data", train=8), tiny_question_recipe(cache=False)
    text = TextPreprocessing(TextPreprocessingConfig(max_tokens=16), tiny_tokenizer())
    questions = list(read_questions(data, "train2014").items)
    questions[9] = replace(questions[9], text="Is " * 12)
    with (
        open_run(recipe, RunOptions(tmp_path / "out", device="cpu", show_progress=False)) as opening,
        open_question_images(questions, data, recipe, opening) as images,
    ):
        shutil.rmtree(data / "train2014")
        answers = {"no": 0, "yes": 1}
        loader = QuestionLoader(questions, batch_size=4, images=images, text=text, answers=answers)
        batch = loader.largest()
    assert batch.images.shape == (4, 3, 16, 16)
    assert 9 in batch.items
    assert batch.input_ids.shape == text(["Is " * 12]).input_ids.expand(4, -1).shape
    assert batch.scores.shape == (4, 2)
    assert not images.broken.items


def test_a_pretrained_tower_brings_its_preprocessing(
    squares: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tower, tree = tmp_path / "resnet", tiny_question_tree()
    folders.resnet(tower)
    tree["model"]["image"] = {"architecture": "resnet", "pretrained": str(tower)}
    tree["preprocessing"] = {"size": 32, "mean": [0.5, 0.5, 0.5]}
    tree["train"]["epochs"] = 1
    with caplog.at_level(logging.WARNING):
        run(parse_as(QuestionRecipe, tree, "The tiny recipe"), squares, tmp_path / "out")
    kept = yaml.safe_load((tmp_path / "out/recipe.yaml").read_text())["preprocessing"]
    assert (kept["size"], kept["resize"], kept["mean"]) == (32, "squash", [0.5, 0.5, 0.5])
    assert f"{tower} was trained with (0.485, 0.456, 0.406)" in caplog.text


# Recipes.

RECIPES = {
    name: recipe
    for name in classification_recipes().names
    if name.startswith("vqa-") and isinstance(recipe := load_classification_recipe(name), QuestionRecipe)
}


def test_there_is_a_recipe_for_each_row_and_one_to_try() -> None:
    assert set(RECIPES) == {"vqa-ban-base", "vqa-ban-reclaim", "vqa-small-base", "vqa-small-reclaim"}
    for name, recipe in RECIPES.items():
        assert (recipe.reclaim is not None) is name.endswith("-reclaim")
        assert bool(published(recipe)) is ("-ban-" in name)
        assert recipe.preprocessing.scaled_decoding
    unscaled = load_classification_recipe("vqa-ban-base", ["preprocessing.scaled_decoding=false"])
    assert isinstance(unscaled, QuestionRecipe)
    assert not unscaled.preprocessing.scaled_decoding
    ban = RECIPES["vqa-ban-base"]
    assert (ban.model.glimpses, ban.model.question.width, ban.data.min_answer_count) == (8, 1280, 9)
    assert (ban.train.batch_size, ban.train.epochs, ban.optimizer.max_grad_norm) == (256, 13, 0.25)
    assert ban.model.image.frozen
    # 443,757 questions, of which the held-out share chooses.
    kept = 443_757 - math.floor(ban.data.validation_share * 443_757)
    assert ban.schedule.warmup_steps == 4 * math.ceil(kept / ban.train.batch_size)


@pytest.mark.parametrize("name", RECIPES)
def test_recipe_s_model_is_built_on_no_device_and_a_small_one_trains(name: str, tmp_path: Path) -> None:
    tree = RECIPES[name].model_dump(mode="json")
    image = tree["model"]["image"]
    if image["pretrained"] is not None:
        assert image["pretrained"] == "microsoft/resnet-101"
        image |= {"pretrained": None, "options": {"depths": [3, 4, 23, 3]}}
    with torch.device("meta"):
        config = AnswerModelConfig.model_validate(tree["model"])
        model = AnswerModel(config, tiny_tokenizer(), 3129, load=False)
    assert all(parameter.is_meta for parameter in model.parameters())
    assert sum(parameter.numel() for parameter in model.parameters()) > 1e6
    image["options"] = IMAGE_OPTIONS[image["architecture"]]
    tree["model"]["question"] |= {"word_width": 8, "width": 12}
    tree["preprocessing"]["size"] = 32
    tree["data"] |= {"min_answer_count": 1, "validation_share": 0.2}
    tree["train"] |= {"batch_size": 8, "epochs": 1, "precision": "fp32"}
    data = write_vqa(tmp_path / "data", train=10, val=4)
    result = run(parse_as(QuestionRecipe, tree, name), data, tmp_path / "out")
    assert 0 <= result.test["vqa_score"] <= 1

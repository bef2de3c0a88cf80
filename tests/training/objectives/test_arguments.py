"""Calls and settings of all objectives: two embeddings, wrong arguments, and classes from elsewhere."""

import doctest
import inspect
import re
from typing import Annotated, Any, Final

import numpy as np
import pytest
import torch
from pydantic import Field
from torch import Tensor, nn

from tests.training.objectives.cases import blades_of, build_case, cases, random_batch
from tests.training.objectives.reference import features, mask_of, random_embeddings
from training.common.errors import RecipeError
from training.objectives import LTD, VSE, ContrastiveBinary, InfoNCE, ReCo, Sigmoid
from training.objectives.base import ObjectiveContext, objective_names, objective_settings, parse_objective
from training.objectives.similarity import cosine_matrix
from training.papers.reclaim import Reclaim

CONTEXT: Final = ObjectiveContext(dim=6, embedding_dim=5, instances=4, target_dim=3, vocabulary=7, labels=2)
HERE: Final = __name__
FEATURES: Final = "the features of its modalities"
TAKES_EMBEDDINGS: Final = re.compile(
    r"(contrastive_binary|dpc|ifm|infonce|orthogonality|reclaim|reco|sigmoid|sum|vse)(?!-ltd)|quest-sic$"
)


@pytest.mark.parametrize("name", sorted(cases()))
def test_two_embeddings_are_enough_unless_more_is_required(name: str) -> None:
    batch = random_batch(blades=blades_of(name))
    objective = build_case(name, batch)
    image, text, mask = batch["image"].embedding, batch["text"].embedding, batch.positive_mask
    needs = [need.partition(":")[0] for need in objective.needs.values()]
    lacking = ", ".join(sorted(objective.requires - {"one_vector"}) or needs or [FEATURES])
    given, sentence = [image, text], rf"needs more than two embeddings \({lacking}\): call it with"
    if TAKES_EMBEDDINGS.match(name):
        assert torch.equal(objective(image, text, mask), objective(features(image, text, mask)))
        assert torch.equal(objective(image, text), objective(features(image, text)))
        given, sentence = [image], "needs two batches: call it with the embeddings of images and of texts"
    with pytest.raises(ValueError, match=rf"^{type(objective).__name__} {sentence}"):
        objective(*given)


@pytest.mark.parametrize("name", sorted(cases()))
def test_settings_are_read_as_they_are_written(name: str) -> None:
    settings = cases()[name]
    assert parse_objective(settings.model_dump(mode="json")) == settings


@pytest.mark.parametrize(
    ("image", "text", "mask", "sentence"),
    [
        ((5, 6), (4, 6), None, r"^Image embeddings \(5, 6\) and text embeddings \(4, 6\) must have one"),
        ((4, 6), (4, 5), None, "must have one shape"),
        ((4, 2, 6), (4, 6), None, "must have one shape"),
        ((4,), (4,), None, "must have one shape"),
        ((4, 2, 2, 2), (4, 2, 2, 2), None, r"\(B, D\), or \(B, k, D\) for k-blades: row i of both is"),
        ((0, 6), (0, 6), None, r"^The batch is empty: give one pair of an image and a text, or more\.$"),
        ((4, 6), (4, 6), torch.eye(4), r"^positive_mask is torch\.float32 and has to be torch\.bool: w"),
        ((4, 6), (4, 6), mask_of(3), r"^positive_mask is \(3, 3\), and a batch of 4 pairs takes \(4, 4\)"),
        ((4, 6), (4, 6), mask_of(4)[:2], r"^positive_mask is \(2, 4\), and"),
        ((4, 6), (4, 6), mask_of(4)[0], r"^positive_mask is \(4,\), and"),
    ],
)
def test_wrong_batches_are_refused(
    image: tuple[int, ...], text: tuple[int, ...], mask: Tensor | None, sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        ReCo()(torch.rand(image), torch.rand(text), mask)


ABOVE_0, AT_LEAST_0 = "greater than 0", "greater than or equal to 0"


@pytest.mark.parametrize(
    ("name", "argument", "wrong", "sentence", "right"),
    [
        ("contrastive_binary", "hidden", 0, ABOVE_0, 1),
        ("ifm", "epsilon", -0.1, AT_LEAST_0, 0),
        ("infonce", "image_weight", -0.1, AT_LEAST_0, 0),
        ("infonce", "image_weight", 1.1, "less than or equal to 1", 1),
        ("infonce", "max_scale", 0, ABOVE_0, 1),
        ("infonce", "temperature", 0, ABOVE_0, "auto"),
        ("infonce", "temperature", "towers", "'auto' or 'pretrained'", 0.1),
        ("ltd", "bound", 0, ABOVE_0, 0.1),
        ("ltd", "hidden", 0, ABOVE_0, 1),
        ("ltd", "max_multiplier", 0, ABOVE_0, 0.1),
        ("ltd", "mode", "both", "'dual' or 'constrained'", "dual"),
        ("ltd", "multiplier_dampening", -0.1, AT_LEAST_0, 0),
        ("ltd", "multiplier_dampening", 1, "less than 1", 0.9),
        ("ltd", "multiplier_momentum", -0.1, AT_LEAST_0, 0),
        ("ltd", "multiplier_momentum", 1, "less than 1", 0.9),
        ("ltd", "multiplier_rate", 0, ABOVE_0, 0.1),
        ("ltd", "weight", -0.1, AT_LEAST_0, 0),
        ("orthogonality", "negative_weight", -0.1, AT_LEAST_0, 0),
        ("quest", "cosine_weight", -0.1, AT_LEAST_0, 0),
        ("quest", "penalty", -0.1, AT_LEAST_0, 0),
        ("quest", "penalty", 11, "less than or equal to 10", 10),
        ("quest", "unique", "quad", "'none', 'sic', 'uic' or 'p_uic'", "uic"),
        ("quest", "unique_weight", -0.1, AT_LEAST_0, 0),
        ("reco", "negative_power", 0.9, "greater than or equal to 1", 1),
        ("reco", "reduction", "mean", "'paper' or 'balanced'", "balanced"),
        ("reco", "threshold", -1.1, "greater than or equal to -1", -1),
        ("reco", "threshold", 1, "less than 1", 0.9),
        ("sigmoid", "bias", "towers", "'auto' or 'pretrained'", 0),
        ("sigmoid", "temperature", 0, ABOVE_0, 0.1),
        ("vse", "margin", 0, ABOVE_0, 0.1),
    ],
)
def test_a_class_and_a_recipe_refuse_the_same(
    name: str, argument: str, wrong: object, sentence: str, right: object
) -> None:
    module = objective_settings(name).implementation
    arguments = inspect.signature(module).parameters
    sizes = {key: getattr(CONTEXT, key) for key in arguments if hasattr(CONTEXT, key)}
    with pytest.raises(ValueError, match=rf"^{module.__name__}: {argument}.*: input should be {sentence}"):
        module(**{argument: wrong}, **sizes)
    with pytest.raises(ValueError, match=sentence):
        parse_objective({"name": name, argument: wrong})
    module(**{argument: right}, **sizes)
    parse_objective({"name": name, argument: right}).build(CONTEXT)


def test_what_was_checked_is_what_is_used() -> None:
    written: Any = "0.1"
    assert 1 / InfoNCE(written).scale().item() == pytest.approx(0.1)
    off: Any = "no"
    assert InfoNCE(0.1, learnable_temperature=off).scale.log_scale is None
    assert VSE(hardest=off).hardest is False
    with pytest.raises(ValueError, match="negative_weight: input should be a finite number, not inf"):
        ReCo(float("inf"))
    with pytest.raises(TypeError, match="unexpected keyword argument 'neighbors', of bank_seed, base"):
        Reclaim(embedding_dim=4, instances=5, neighbors=3)


def test_batches_that_are_no_tensors_or_of_another_width_are_refused() -> None:
    pixels: Any = np.zeros((3, 4))
    with pytest.raises(ValueError, match=r"^The embeddings are ndarray and ndarray: give two torch\.Tensor"):
        ReCo()(pixels, pixels)
    with pytest.raises(ValueError, match="embeddings of 16 numbers, and these have 8: give embedding_dim=8"):
        ContrastiveBinary(embedding_dim=16)(torch.rand(3, 8), torch.rand(3, 8))


def test_other_arguments_are_refused() -> None:
    tau: dict[str, Any] = {"tau": 0.1}
    with pytest.raises(TypeError, match="unexpected keyword argument 'tau'"):
        InfoNCE(**tau)
    with pytest.raises(ValueError, match="Extra inputs are not permitted"):
        parse_objective({"name": "infonce", **tau})
    with pytest.raises(ValueError, match=r"^LTD: target_dim is 0, and must be 1 or more\.$"):
        LTD(embedding_dim=1, target_dim=0)
    with pytest.raises(ValueError, match=r"^temperature='pretrained' is for recipes, which name towers: "):
        InfoNCE("pretrained")
    with pytest.raises(ValueError, match=r"^'pretrained' is for recipes, which name towers: "):
        Sigmoid("pretrained")


@pytest.mark.parametrize(
    ("name", "lacking"),
    [
        ("ltd", "embeddings of a frozen sentence encoder: set data.target_encoder to its folder"),
        ("reclaim", "training items"),
        ("caption_lstm", "texts as words: give data.captions, such as {vocabulary: words}"),
        ("labels", "labels: add `labels` to images of the train split"),
        ("scan", "a way to compare pairs: give model.pair_attention, such as {queries: words}"),
    ],
)
def test_sizes_that_a_run_lacks_are_named(name: str, lacking: str) -> None:
    with pytest.raises(RecipeError, match=rf"^The objective {name} needs {re.escape(lacking)}\.$"):
        parse_objective(name).build(ObjectiveContext(dim=5, embedding_dim=5))


@pytest.mark.parametrize("name", objective_names())
def test_examples_of_docstrings_run(name: str) -> None:
    module, runner = objective_settings(name).implementation, doctest.DocTestRunner()
    for example in doctest.DocTestFinder(recurse=False).find(module, globs={"torch": torch}):
        runner.run(example)
    assert runner.failures == 0
    assert runner.tries > 0


class NoModule:
    """A class of anything."""


class Triplet(nn.Module):
    """A loss that knows nothing of this package."""

    def __init__(self, margin: Annotated[float, Field(gt=0)], embedding_dim: int = 0) -> None:
        super().__init__()
        if margin > 100:
            raise ValueError("the margin is far too large")
        self.margin, self.dim = margin, embedding_dim
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, image: Tensor, text: Tensor) -> Tensor:
        return (self.margin - (image * text).sum(dim=1) * self.scale).clamp(min=0).mean()


class Masked(nn.Module):
    """A loss that takes the mask."""

    def forward(self, image: Tensor, text: Tensor, positive_mask: Tensor | None = None) -> Tensor:
        cosines = cosine_matrix(image, text)
        return cosines.mean() if positive_mask is None else cosines[positive_mask].mean()


class Returns(nn.Module):
    """A module that returns no scalar."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what = what

    def forward(self, image: Tensor, text: Tensor) -> Any:
        rows = (image * text).sum(dim=1)
        return rows if self.what == "rows" else (rows.mean(), {})


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (3, r"^an objective is a name or a mapping with a name, such as \{name: reco\}$"),
        ({"margin": 1}, "^name is missing; there are byol, "),
        ("nothing", "^'nothing' is not an objective; there are byol, .*, and your own as module:Class$"),
        ("no_such_module:Loss", "^no_such_module:Loss can't be imported: No module named 'no_such_module'$"),
        (f"{HERE}:Nothing", ":Nothing can't be imported: module '.*' has no attribute 'Nothing'$"),
        (f"{HERE}:mask_of", r":mask_of is not a class of torch\.nn\.Module$"),
        (f"{HERE}:NoModule", r":NoModule is not a class of torch\.nn\.Module$"),
        (f"{HERE}:Triplet", "margin\n  Field required"),
        ({"name": f"{HERE}:Triplet", "margin": -1}, ABOVE_0),
    ],
)
def test_what_is_no_objective_is_refused(value: object, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        parse_objective(value)


def test_a_plain_module_is_an_objective() -> None:
    settings = parse_objective({"name": f"{HERE}:Triplet", "margin": 2})
    assert parse_objective(settings.model_dump(mode="json")) == settings
    assert settings.compares_items
    assert parse_objective("reco").compares_items
    objective = settings.build(CONTEXT)
    (module,) = (part for part in objective.modules() if isinstance(part, Triplet))
    assert module.dim == CONTEXT.embedding_dim
    assert objective.requires == {"one_vector"}
    image, text = (batch.bfloat16() for batch in random_embeddings(4))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = objective.compute(features(image, text))
    assert torch.equal(output.total, module(image.float(), text.float()))
    assert not output.terms
    with pytest.raises(RecipeError, match=r"^the margin is far too large$"):
        parse_objective({"name": f"{HERE}:Triplet", "margin": 200}).build(CONTEXT)


def test_a_plain_module_has_the_mask_and_the_pairs_of_the_recipe() -> None:
    (image, text), mask = random_embeddings(4), mask_of(4, (0, 2), (3, 1))
    objective = parse_objective(f"{HERE}:Masked").build(CONTEXT)
    assert torch.equal(objective(image, text, mask), cosine_matrix(image, text)[mask].mean())
    assert torch.equal(objective(image, text), cosine_matrix(image, text).mean())
    turned = parse_objective({"name": f"{HERE}:Masked", "pairs": [["text", "image"]]}).build(CONTEXT)
    assert torch.equal(turned(features(image, text, mask)), cosine_matrix(text, image)[mask.T].mean())
    with pytest.raises(ValueError, match=r"^ForeignObjective needs more than two embeddings"):
        turned(image, text)


@pytest.mark.parametrize(("what", "found"), [("rows", r"shape \(4,\)"), ("a pair", "tuple")])
def test_a_plain_module_that_returns_no_scalar_is_refused(what: str, found: str) -> None:
    objective = parse_objective({"name": f"{HERE}:Returns", "what": what}).build(CONTEXT)
    with pytest.raises(RecipeError, match=rf"^forward\(\) of Returns returned {found}: return a scalar"):
        objective(*random_embeddings(4))


def test_an_unknown_argument_is_named_with_those_that_there_are() -> None:
    arguments: dict[str, Any] = {"margn": 1}
    with pytest.raises(TypeError, match=r"^VSE: got an unexpected .*'margn', of margin, hardest"):
        VSE(**arguments)

"""One query vector of several parts."""

import numpy as np
import pytest

from index.errors import QueryError
from index.scoring import Background
from index.search.request import Part, Parts, compose
from index.vectors.protocol import Vectors
from tests.index.samples import unit_vectors

DIM = 16


def _unit(vector: Vectors) -> Vectors:
    unit: Vectors = (vector / np.linalg.norm(vector)).astype(np.float32)
    return unit


@pytest.fixture(scope="module")
def background() -> Background:
    """Images of two kinds, along the first axis and against it, all with a common part along the last."""
    sample = 0.3 * unit_vectors(200, DIM, 1)
    sample[::2, 0] += 0.5
    sample[1::2, 0] -= 0.5
    sample[:, -1] += 0.8
    return Background(sample / np.linalg.norm(sample, axis=1, keepdims=True), 200)


def _images(*vectors: Vectors) -> tuple[Part, ...]:
    return tuple(Part(vector, "image") for vector in vectors)


def _side(background: Background, query: Vectors) -> float:
    """How much farther up images of the first kind are, in standard deviations of all scores."""
    scores = background.sample @ query
    return float((scores[::2].mean() - scores[1::2].mean()) / scores.std())


def test_a_single_vector_is_left_as_it_is(background: Background) -> None:
    vector = unit_vectors(1, DIM)[0]
    for parts in (Parts(queries=_images(vector)), Parts(liked=(Part(vector, None),))):
        assert compose(parts, background) is vector


def test_examples_golden() -> None:
    """By hand: (q + l1 + l2) / 3 - (8 m + d) / 9, where all scores spread alike."""
    axes = np.eye(4, dtype=np.float32)
    sample = np.concatenate((axes, -axes))
    background = Background(sample, 8)
    parts = Parts(queries=_images(axes[0]), liked=_images(axes[1], axes[2]), disliked=_images(axes[3]))
    expected = np.array([1 / 3, 1 / 3, 1 / 3, -1 / 9])
    np.testing.assert_allclose(compose(parts, background), expected / np.linalg.norm(expected), rtol=1e-6)


def test_text_and_image_together_weigh_the_same_however_close_the_texts_scores_lie(
    background: Background,
) -> None:
    """A text points mostly away from all images; what is left decides as much as an image does."""
    text = np.zeros(DIM, dtype=np.float32)
    text[1] = 1
    text[0] = -0.3
    image = _unit(background.sample[0])
    plain = _side(background, _unit(image + _unit(text)))
    together = compose(Parts(queries=(Part(_unit(text), "text"), *_images(image))), background)
    spreads = [(background.sample @ part).std() for part in (_unit(text), image)]
    np.testing.assert_allclose(together, _unit(_unit(text) / spreads[0] + image / spreads[1]), atol=1e-5)
    assert _side(background, together) < plain / 2


def test_liked_and_disliked_part_the_kinds(background: Background) -> None:
    first, second = background.sample[0:6:2], background.sample[1:7:2]
    query = compose(Parts(liked=_images(*first), disliked=_images(*second)), background)
    assert _side(background, query) > 1.5
    mean = _side(background, _unit(first.mean(axis=0)))
    assert _side(background, query) > mean


def test_only_disliked_turns_away(background: Background) -> None:
    query = compose(Parts(disliked=_images(*background.sample[0:6:2])), background)
    assert _side(background, query) < -1.5


def test_a_text_with_feedback_is_heard_and_hears(background: Background) -> None:
    text = Part(_unit(unit_vectors(1, DIM, 9)[0]), "text")
    alone = _side(background, text.vector)
    query = compose(Parts(queries=(text,), disliked=_images(*background.sample[0:20:2])), background)
    assert _side(background, query) < alone
    assert float(query @ text.vector) > 0.5


def test_order_and_length_of_examples_do_not_matter_and_the_answer_is_of_length_one(
    background: Background,
) -> None:
    examples = _images(*unit_vectors(5, DIM, 3))
    query = compose(Parts(liked=examples[:3], disliked=examples[3:]), background)
    other = compose(Parts(liked=examples[2::-1], disliked=examples[:2:-1]), background)
    np.testing.assert_allclose(query, other, atol=1e-6)
    assert float(np.linalg.norm(query)) == pytest.approx(1, abs=1e-6)
    assert query.dtype == np.float32


def test_contradictory_examples_leave_what_is_asked_for_or_are_refused(background: Background) -> None:
    """What is both liked and disliked hardly counts; nothing but contradictions is still a direction."""
    both = _images(*background.sample[:2])
    text = Part(_unit(unit_vectors(1, DIM, 9)[0]), "text")
    query = compose(Parts(queries=(text,), liked=both, disliked=both), background)
    assert np.isfinite(query).all()
    blank = Background(np.zeros((1, DIM), dtype=np.float32), 0)
    one = _images(background.sample[0])
    with pytest.raises(QueryError, match="cancel each other out"):
        compose(Parts(queries=(*one, *_images(-background.sample[0]))), blank)


def test_nothing_to_search_for_is_refused(background: Background) -> None:
    with pytest.raises(QueryError, match="nothing to search for"):
        compose(Parts(), background)


@pytest.mark.parametrize(("blades", "unsigned"), [(2, False), (1, True)])
def test_vectors_that_cannot_be_added_are_refused(blades: int, unsigned: bool) -> None:
    sample = unit_vectors(20, DIM)
    background = Background(sample, 20, blades=blades, unsigned=unsigned)
    assert compose(Parts(liked=_images(sample[0])), background) is not None
    with pytest.raises(QueryError, match="one text, image, id or vector only"):
        compose(Parts(liked=_images(*sample[:2])), background)

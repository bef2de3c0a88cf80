"""Vectors that lie like those of real encoders, made from a seed alone.

A tree of clusters, each node a step from its parent: 64 topics, then four times as many nodes a level until
there are about as many as vectors. A level's steps are shorter than those above by the factor 4^(-1/d), so
that at every scale the number of neighbours within a distance r grows as r^d, as it does for real
embeddings of local dimension d. All steps share one decaying spectrum; sizes of clusters and lengths of
steps vary. The constants are fitted to all-MiniLM-L6-v2's vectors of Flickr8k's captions;
`neighbour_statistics` shows how near they come.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]

_TOPICS: Final = 64
_BRANCHES: Final = 4
_LOCAL_DIMENSION: Final = 13.0
# Of all variance, what topics explain, and the length that all vectors share with their mean.
_TOPIC_VARIANCE: Final = 0.25
_MEAN: Final = 0.26
# Standard deviations of the logarithms of cluster sizes and of steps.
_SIZE_SPREAD: Final = 0.5
_STEP_SPREAD: Final = 0.15
# The spectrum is (place + shift)^-decay, cut off smoothly.
_DECAY: Final = 0.9
_SHIFT: Final = 4
_CUT: Final = 180.0
# A query encoder does not say quite what the other encoder says, and lies a little apart from it.
_QUERY_NOISE: Final = 0.35
_QUERY_GAP: Final = 0.2
_BLOCK: Final = 50_000
# Directions that images and texts of clusters have in common.
_SHARED: Final = 64
_IMAGES_A_SUBJECT: Final = 30


@dataclass(frozen=True, slots=True)
class MadeVectors:
    """Vectors to be searched and queries, all of length one.

    Attributes:
        vectors: Of images (N, D).
        image_queries: Of other images (Q, D).
        text_queries: Of texts of those (Q, D).
        texts: Of one text of each searched image (N, D).
    """

    vectors: Vectors
    image_queries: Vectors
    text_queries: Vectors
    texts: Vectors


def make_vectors(count: int, queries: int, dim: int, seed: int = 0) -> MadeVectors:
    """Make `count` vectors and `queries` held-out ones; texts are these, perturbed as by another encoder."""
    random = np.random.default_rng(seed)
    spectrum = _spectrum(dim)
    centres, spreads, weights = _clusters(random, count + queries, spectrum)
    basis = np.linalg.qr(random.standard_normal((dim, dim)))[0].astype(np.float32)
    mean = _MEAN * basis[0]
    made = np.empty((count + queries, dim), dtype=np.float32)
    total = 0.0
    for start in range(0, len(made), _BLOCK):
        block = made[start : start + _BLOCK]
        nodes = random.choice(len(centres), len(block), p=weights)
        steps = spreads[nodes] * np.exp(_STEP_SPREAD * random.standard_normal(len(block), dtype=np.float32))
        block[:] = random.standard_normal(block.shape, dtype=np.float32) * spectrum
        block *= steps[:, None]
        block += centres[nodes]
        total += float(np.einsum("nd,nd->", block, block, dtype=np.float64))
    scale = np.float32(1 / math.sqrt(total / len(made)))
    for start in range(0, len(made), _BLOCK):
        block = made[start : start + _BLOCK]
        block[:] = _unit(scale * block @ basis + mean)
    texts = np.empty_like(made)
    gap: Vectors = np.matmul(random.standard_normal((1, dim), dtype=np.float32) * spectrum, basis)
    gap *= _QUERY_GAP / np.linalg.norm(gap)
    for start in range(0, len(made), _BLOCK):
        block = made[start : start + _BLOCK]
        noise: Vectors = random.standard_normal(block.shape, dtype=np.float32) * spectrum
        texts[start : start + _BLOCK] = _unit(block + _QUERY_NOISE * np.matmul(noise, basis) + gap)
    return MadeVectors(made[:count], made[count:], texts[count:], texts[:count])


def make_clusters(count: int, queries: int, dim: int, seed: int = 0) -> MadeVectors:
    """Make vectors of a few dozen images of each subject, and texts in a cone far from all images.

    So encoders of images and texts lie that were trained with a contrast: a text's cosine with its own images
    is lower than that of any two images.
    """
    random = np.random.default_rng(seed)
    shared = _unit(random.standard_normal((_SHARED, dim), dtype=np.float32))
    subjects = max(1, count // _IMAGES_A_SUBJECT)
    subject = _unit(random.standard_normal((subjects, _SHARED), dtype=np.float32) @ shared)
    of_images, of_texts = _unit(random.standard_normal((2, dim), dtype=np.float32))
    chosen = random.integers(0, subjects, count + queries)
    images = np.empty((count + queries, dim), dtype=np.float32)
    texts = np.empty_like(images)
    for start in range(0, len(images), _BLOCK):
        block = slice(start, min(start + _BLOCK, len(images)))
        size = (block.stop - block.start, dim)
        about = subject[chosen[block]]
        noise = [_unit(random.standard_normal(size, dtype=np.float32)) for _ in range(2)]
        images[block] = _unit(0.75 * of_images + 0.55 * about + 0.35 * noise[0])
        texts[block] = _unit(0.80 * of_texts + 0.45 * about + 0.40 * noise[1])
    return MadeVectors(images[:count], images[count:], texts[count:], texts[:count])


def _spectrum(dim: int) -> Vectors:
    place = np.arange(dim)
    deviations = (place + _SHIFT) ** (-_DECAY / 2) * np.exp(-((place / _CUT) ** 2) / 2)
    spectrum: Vectors = (deviations / np.linalg.norm(deviations)).astype(np.float32)
    return spectrum


def _clusters(
    random: np.random.Generator, count: int, spectrum: Vectors
) -> tuple[Vectors, Vectors, NDArray[np.float64]]:
    """Return the centres (C, D) of the smallest clusters, how far their vectors spread, and their shares."""
    levels = max(1, math.ceil(math.log(max(2, count) / _TOPICS, _BRANCHES)) + 1)
    centres = np.zeros((1, len(spectrum)), dtype=np.float32)
    spreads = np.ones(1, dtype=np.float32)
    weights = np.ones(1)
    rest = 1.0
    for level in range(levels):
        nodes = _TOPICS * _BRANCHES**level
        left = (1 - _TOPIC_VARIANCE) * _BRANCHES ** (-2 * level / _LOCAL_DIMENSION)
        parents = random.choice(len(centres), nodes, p=weights)
        spreads = spreads[parents] * np.exp(_STEP_SPREAD * random.standard_normal(nodes, dtype=np.float32))
        steps = random.standard_normal((nodes, len(spectrum)), dtype=np.float32)
        steps *= np.float32(math.sqrt(rest - left)) * spectrum
        steps *= spreads[:, None]
        steps += centres[parents]
        centres, rest = steps, left
        weights = np.exp(_SIZE_SPREAD * random.standard_normal(nodes))
        weights /= weights.sum()
    return centres, spreads * np.float32(math.sqrt(rest)), weights


def perturb(vectors: Vectors, noise: Vectors) -> Vectors:
    """Turn held-out vectors (Q, D) into queries by noise (Q, D) of length one on average and a common gap."""
    gap = noise.mean(axis=0)
    gap /= np.linalg.norm(gap)
    return _unit(vectors + _QUERY_NOISE * noise + _QUERY_GAP * gap)


def _unit(vectors: Vectors) -> Vectors:
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors

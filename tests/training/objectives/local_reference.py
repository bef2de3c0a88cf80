"""Batches with regions and sentences of different numbers, and slow references for losses over them."""

import math
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import normalize

from training.models.features import Features, ModalityFeatures
from training.objectives.cross_attention import CrossAttention
from training.objectives.local_entries import LocalEntries

DIM = 5
SENTENCES = (3, 1, 2, 3)


def random_entries(counts: tuple[int, ...], seed: int = 0, dim: int = DIM) -> LocalEntries:
    """Entries in float64: so many real ones in each sample, then zeros; random weights."""
    generator = torch.Generator().manual_seed(seed)
    mask = torch.arange(max(counts)) < torch.tensor(counts).unsqueeze(1)
    values = torch.randn((*mask.shape, dim), generator=generator, dtype=torch.float64)
    weights = torch.rand(mask.shape, generator=generator, dtype=torch.float64) * mask
    return LocalEntries(values * mask.unsqueeze(2), mask, weights / weights.sum(dim=1, keepdim=True))


def local_batch(grid: tuple[int, int] = (2, 3), sentences: tuple[int, ...] = SENTENCES) -> Features:
    """Images of a grid of regions and texts of several sentences, all real ones weighted at random."""
    generator = torch.Generator().manual_seed(1)
    image, text = torch.randn((2, len(sentences), DIM), generator=generator, dtype=torch.float64)
    regions = random_entries((grid[0] * grid[1],) * len(sentences), seed=2)
    parts = random_entries(sentences, seed=3)
    return Features({"image": _with_entries(image, regions), "text": _with_entries(text, parts)})


def _with_entries(embedding: Tensor, entries: LocalEntries) -> ModalityFeatures:
    return ModalityFeatures(
        embedding, local=entries.values, local_mask=entries.mask, local_weights=entries.weights
    )


def as_float(batch: Features) -> Features:
    """The batch in float32."""

    def convert(value: Tensor | None) -> Tensor | None:
        return None if value is None else value.float()

    modalities = {
        name: replace(
            features,
            embedding=features.embedding.float(),
            local=convert(features.local),
            local_weights=convert(features.local_weights),
        )
        for name, features in batch.modalities.items()
    }
    return replace(batch, modalities=modalities)


def with_padding_of(batch: Features, garbage: float) -> Features:
    """The batch with this number in every padded place of the text, and in its weights."""
    text = batch["text"]
    assert text.local is not None
    assert text.local_mask is not None
    assert text.local_weights is not None
    padded = ~text.local_mask
    changed = replace(
        text,
        local=text.local.masked_fill(padded.unsqueeze(2), garbage),
        local_weights=text.local_weights.masked_fill(padded, garbage),
    )
    return replace(batch, modalities={**batch.modalities, "text": changed})


def real_vectors(entries: LocalEntries) -> list[list[Tensor]]:
    """The real vectors of each sample."""
    return [
        [vector for vector, real in zip(vectors, reals, strict=True) if real]
        for vectors, reals in zip(entries.values, entries.mask, strict=True)
    ]


def real_weights(entries: LocalEntries) -> list[list[float]]:
    """The weights of the real entries of each sample."""
    return [
        [float(weight) for weight, real in zip(weights, reals, strict=True) if real]
        for weights, reals in zip(entries.weights, entries.mask, strict=True)
    ]


def plain_cosines(a: Tensor, b: Tensor) -> Tensor:
    """Cosines (B, K, L) of vectors (B, K, D) and (B, L, D), normalised first."""
    return normalize(a, dim=2) @ normalize(b, dim=2).transpose(1, 2)


def slow_cosine(a: Tensor, b: Tensor) -> float:
    """Cosine of two vectors."""
    return float(a @ b) / (math.sqrt(float(a @ a)) * math.sqrt(float(b @ b)))


def slow_attention(
    attention: CrossAttention, queries: LocalEntries, entries: LocalEntries
) -> list[list[Tensor]]:
    """What each real query finds: every projection is applied as the paper writes it."""
    found = []
    for asking, answering in zip(real_vectors(queries), real_vectors(entries), strict=True):
        keys = [attention.key(vector) for vector in answering]
        values = [attention.value(vector) for vector in answering]
        sample = []
        for query in asking:
            scores = [float(attention.key(query) @ key) / math.sqrt(len(query)) for key in keys]
            total = sum(math.exp(score) for score in scores)
            mean = sum(
                (math.exp(score) / total * value for score, value in zip(scores, values, strict=True)),
                start=torch.zeros_like(query),
            )
            sample.append(attention.output(mean))
        found.append(sample)
    return _slow_batch_norm(attention, found)


def _slow_batch_norm(attention: CrossAttention, found: list[list[Tensor]]) -> list[list[Tensor]]:
    every = [vector for sample in found for vector in sample]
    mean = sum(every, start=torch.zeros_like(every[0])) / len(every)
    variance = sum(((vector - mean) ** 2 for vector in every), start=torch.zeros_like(mean)) / len(every)
    norm = attention.norm
    deviation = torch.sqrt(variance + norm.eps)
    return [[(vector - mean) / deviation * norm.weight + norm.bias for vector in sample] for sample in found]


def slow_direction(
    own: list[list[Tensor]],
    other: list[list[Tensor]],
    weights: list[list[float]],
    temperature: float,
    positives: list[list[float]] | None,
) -> float:
    """Mean over samples of the weighted cross entropy of each own entry with the other side's entries."""
    total = 0.0
    for sample, partners, sample_weights in zip(own, other, weights, strict=True):
        for k, vector in enumerate(sample):
            scores = [slow_cosine(vector, partner) / temperature for partner in partners]
            normaliser = math.log(sum(math.exp(score) for score in scores))
            wanted = [float(k == position) for position in range(len(scores))]
            if positives is not None:
                row = positives[k][: len(scores)]
                wanted = [weight / sum(row) for weight in row]
            entropy = -sum(
                weight * (score - normaliser) for weight, score in zip(wanted, scores, strict=True)
            )
            total += sample_weights[k] * entropy
    return total / len(own)


def slow_positives(height: int, width: int, reach: float) -> list[list[float]]:
    """Weights of positives on a grid, one pair of cells after the other."""
    diagonal = math.hypot(height, width)
    cells = [(row, column) for row in range(height) for column in range(width)]
    positives = []
    for here in cells:
        closeness = []
        for there in cells:
            distance = math.hypot(here[0] - there[0], here[1] - there[1]) / diagonal
            closeness.append(math.exp(-distance) if distance <= reach + 1e-12 else 0.0)
        positives.append([value / sum(closeness) for value in closeness])
    return positives


def slow_uniformity(entries: LocalEntries, kind: str, temperature: float) -> float:
    """Uniformity, one pair of entries after the other."""
    total = 0.0
    for sample in real_vectors(entries):
        sums = [sum(math.exp(slow_cosine(one, two) / temperature) for two in sample) for one in sample]
        if kind == "gauss":
            total += math.log(sum(sums) / len(sample) ** 2)
        else:
            total += sum(math.log(value) for value in sums) / len(sample)
    return total / len(entries.values)

"""LoVT: global contrast, and contrast of regions and sentences within each sample."""

import math
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from torch.linalg import vecdot

from training.common.distributed import gather_rows
from training.common.errors import RecipeError
from training.models.features import Features, ModalityFeatures
from training.objectives.base import LossOutput, PairObjective, Requirement
from training.objectives.infonce import ImageWeight, info_nce
from training.objectives.local import LocalEntries, masked_scores, over_norms
from training.objectives.similarity import similarities


def grid_positives(height: int, width: int, *, reach: float = 0.5) -> Tensor:
    """How much each cell of a grid counts as a positive of each other cell (LoVT, section 3.3).

    Cells up to `reach` away count exp(-d), those further away nothing; d is the distance in cells over
    sqrt(height^2 + width^2). Each row is divided by its sum, so the matrix is not symmetric.

    Args:
        height: In cells.
        width: In cells.
        reach: Largest distance of a positive; 0: only the cell itself.

    Returns:
        (height * width, height * width) in float64, the cells row by row.
    """
    cells = torch.cartesian_prod(torch.arange(height), torch.arange(width))
    squared = (cells.unsqueeze(1) - cells).square().sum(dim=2)
    diagonal = height**2 + width**2
    # Squares are whole numbers, so that cells that lie exactly at the reach count on every machine.
    near = squared <= reach**2 * diagonal
    closeness = torch.exp(-(squared.double() / diagonal).sqrt()) * near
    return closeness / closeness.sum(dim=1, keepdim=True)


def local_contrastive(
    cosines: Tensor,
    weights: Tensor,
    mask: Tensor,
    *,
    temperature: float = 0.3,
    positives: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Cross entropy of each entry's positives among the entries of its sample (equations 9-14).

    Args:
        cosines: (B, K, K), entry k of one side with entry l of the other; both sides have the same padding.
        weights: (B, K), zero where padded; a row sums to 1.
        mask: (B, K) bool, True where an entry is real.
        temperature: Temperature of the softmax.
        positives: (K, K) weight of entry l as a positive of entry k; None: an entry's only positive is its
            counterpart. What falls on padded entries is shared out among the real ones.

    Returns:
        Two scalars, means over the batch: from the rows to the columns and back.
    """
    if positives is not None:
        positives = positives * mask.unsqueeze(1)
        total = positives.sum(dim=2, keepdim=True)
        positives = positives / total.clamp(min=torch.finfo(positives.dtype).tiny)
    scores = cosines / temperature
    there, back = (_one_direction(direction, weights, mask, positives) for direction in (scores, scores.mT))
    return there, back


def _one_direction(scores: Tensor, weights: Tensor, mask: Tensor, positives: Tensor | None) -> Tensor:
    matched = scores.diagonal(dim1=1, dim2=2) if positives is None else (positives * scores).sum(dim=2)
    return (weights * (masked_scores(scores, mask).logsumexp(dim=2) - matched)).sum(dim=1).mean()


@dataclass(frozen=True, slots=True)
class Mixtures:
    """The vectors `weights @ parts` of each sample; 49 regions that attend to 5 sentences have 5 parts.

    Attributes:
        weights: (B, K, M), every row sums to 1.
        parts: (B, M, D).
    """

    weights: Tensor
    parts: Tensor

    @classmethod
    def of_vectors(cls, vectors: Tensor) -> "Mixtures":
        """Vectors (B, K, D) as mixtures of themselves."""
        one = torch.eye(vectors.shape[1], dtype=vectors.dtype, device=vectors.device)
        return cls(one.expand(len(vectors), -1, -1), vectors)

    def vectors(self) -> Tensor:
        """The mixtures written out (B, K, D)."""
        return self.weights @ self.parts

    def cosines(self, others: Tensor) -> Tensor:
        """Cosine of other vectors (B, L, D) with the mixtures of the same sample (B, L, K).

        A mixture in which the parts cancel out counts as a zero vector.
        """
        products = (others @ self.parts.mT) @ self.weights.mT
        gram = self.parts @ self.parts.mT
        squares = ((self.weights @ gram) * self.weights).sum(dim=2)
        rounding = torch.finfo(gram.dtype).eps * gram.diagonal(dim1=1, dim2=2).amax(dim=1, keepdim=True)
        return over_norms(products, vecdot(others, others), torch.maximum(squares, rounding.detach()))

    def moments(self, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """How many mixtures are real (1,), their mean (D,) and their squared deviations from it (D,).

        Args:
            mask: (B, K) bool, True where a mixture is real.
        """
        real = self.weights * mask.unsqueeze(2)
        count = mask.sum().to(real.dtype).reshape(1)
        mean = real.sum(dim=1).flatten() @ self.parts.flatten(0, 1) / count.clamp(min=1)
        # Squared deviations have no derivative by the mean.
        centred = self.parts - mean.detach()
        deviations = (centred * (real.mT @ self.weights @ centred)).sum(dim=(0, 1))
        return count, mean, deviations


class MaskedBatchNorm(nn.Module):
    """Batch normalisation whose statistics leave padding out and span all processes.

    It always uses the statistics of the batch, in evaluation too: it serves layers that are part of a loss
    and never embed a single item. So it keeps no running statistics.
    """

    def __init__(self, width: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, mixtures: Mixtures, mask: Tensor) -> Mixtures:
        """Normalise with the mean and variance of the mixtures whose `mask` (B, K) is True.

        What is done to each mixture can be done to the parts, since the weights sum to 1.
        """
        mean, variance = _over_processes(*mixtures.moments(mask))
        scale = self.weight * torch.rsqrt(variance + self.eps)
        parts = torch.addcmul(self.bias - mean * scale, mixtures.parts, scale)
        return Mixtures(mixtures.weights, parts)


def _over_processes(count: Tensor, mean: Tensor, deviations: Tensor) -> tuple[Tensor, Tensor]:
    """Mean (D,) and biased variance (D,) over all processes, of what each has.

    Deviations from each process's own mean are combined, without the cancellation that sums of squares
    suffer from.
    """
    parts = gather_rows(torch.cat([count, mean, deviations]).unsqueeze(0))
    counts, means, squares = torch.tensor_split(parts, (1, 1 + len(mean)), dim=1)
    total = counts.sum().clamp(min=1)
    mean = (counts * means).sum(dim=0) / total
    between = (counts * (means - mean).square()).sum(dim=0)
    return mean, (squares.sum(dim=0) + between) / total


class CrossAttention(nn.Module):
    """One head; every projection and the normalisation are shared by both modalities (LoVT, section 3.2).

    Queries and keys have the same projection, so one matrix of scores serves both directions.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.key = _projection(width)
        self.value = _projection(width)
        self.output = _projection(width)
        self.norm = MaskedBatchNorm(width)

    def forward(self, first: LocalEntries, second: LocalEntries) -> tuple[Mixtures, Mixtures]:
        """What each entry of one modality finds in the other.

        Args:
            first: K entries of width D.
            second: M entries of width D.

        Returns:
            (B, K, D), the second modality seen from the first; (B, M, D), the first seen from the second.
            Places of padded entries hold numbers without meaning.
        """
        scores = self._scores(first.values, second.values)
        return self._attend(scores, first, second), self._attend(scores.mT, second, first)

    def _scores(self, first: Tensor, second: Tensor) -> Tensor:
        """Scaled dot products of keys (B, K, M).

        (W a + c) . (W b + c) = a . W'(W b + c) + c . (W b + c), so only the shorter side meets the matrix W.
        """
        if first.shape[1] < second.shape[1]:
            return self._scores(second, first).transpose(1, 2)
        keys: Tensor = self.key(second)
        offset = (keys @ self.key.bias).unsqueeze(1)
        products = torch.baddbmm(offset, first, (keys @ self.key.weight).mT)
        return products / math.sqrt(keys.shape[2])

    def _attend(self, scores: Tensor, queries: LocalEntries, entries: LocalEntries) -> Mixtures:
        """Projected and normalised means of the entries, one for each query.

        Attention sums to 1, so projecting and averaging commute; the shorter side is projected.
        """
        attention = masked_scores(scores, entries.mask).softmax(dim=2)
        if scores.shape[1] < scores.shape[2]:
            mixtures = Mixtures.of_vectors(self.output(self.value(attention @ entries.values)))
        else:
            mixtures = Mixtures(attention, self.output(self.value(entries.values)))
        normalised: Mixtures = self.norm(mixtures, queries.mask)
        return normalised


def _projection(width: int) -> nn.Linear:
    """A square linear layer that keeps the variance of its input at the start."""
    layer = nn.Linear(width, width)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="linear")
    nn.init.zeros_(layer.bias)
    return layer


class LoVT(PairObjective):
    """LoVT on embeddings, regions and sentences (Müller et al. 2022, equations 5-14).

    `global_weight` times InfoNCE of the embeddings, plus `region_weight` times the cross entropies (both
    directions) of each region (B, K, D) and what it attends to in the text's sentences, among the regions of
    its image, plus `sentence_weight` times the same of sentences (B, M, D) and what they attend to in the
    image. Neighbours of a region count as its positives, less with distance. Call it with `Features` whose
    modalities have `local`, `local_mask` and `local_weights`.

    Use it to pretrain encoders for segmentation or detection. Its loss over sentences needs reports of
    several sentences; a report of one sentence adds a constant.

    >>> from training.models.features import Features, ModalityFeatures
    >>> from training.objectives import LoVT
    >>> image = ModalityFeatures(torch.randn(8, 64), local=torch.randn(8, 49, 64))
    >>> text = ModalityFeatures(torch.randn(8, 64), local=torch.randn(8, 5, 64))
    >>> LoVT(dim=64)(Features({"image": image, "text": text})).shape
    torch.Size([])
    """

    requires: frozenset[Requirement] = frozenset({"local"})

    def __init__(
        self,
        *,
        dim: int,
        image_weight: ImageWeight = 0.75,
        temperature: Annotated[float, Field(gt=0, description="Temperature of the global loss.")] = 0.1,
        global_weight: Annotated[float, Field(ge=0, description="Gamma.")] = 1.0,
        region_weight: Annotated[
            float, Field(ge=0, description="Weight of each direction of the loss over regions (mu / 2).")
        ] = 0.375,
        sentence_weight: Annotated[
            float, Field(ge=0, description="Weight of each direction of the loss over sentences (nu / 2).")
        ] = 0.375,
        local_temperature: Annotated[
            float, Field(gt=0, description="Temperature of both local losses.")
        ] = 0.3,
        reach: Annotated[
            float,
            Field(
                ge=0,
                description="Distance up to which regions are positives of a region, in parts of the image's "
                "diagonal.",
            ),
        ] = 0.5,
        grid: Annotated[
            tuple[PositiveInt, PositiveInt] | None,
            Field(description="Rows and columns of regions; without it the grid is a square."),
        ] = None,
    ) -> None:
        super().__init__()
        self.image_weight, self.temperature, self.global_weight = image_weight, temperature, global_weight
        self.region_weight, self.sentence_weight = region_weight, sentence_weight
        self.local_temperature, self.reach, self.grid = local_temperature, reach, grid
        self.attention = CrossAttention(dim)
        self.positives: Tensor | None
        self.register_buffer("positives", None, persistent=False)

    @classmethod
    def check(cls, settings: Any) -> None:
        """Check that images come first."""
        if any(first != "image" for first, _ in settings.pairs):
            raise ValueError("every pair of lovt starts with image: its local entries are on a grid")

    def pair_loss(self, first: ModalityFeatures, second: ModalityFeatures, features: Features) -> LossOutput:
        """The loss of one batch; terms: the global loss, and the local losses of regions and sentences."""
        with torch.autocast(first.embedding.device.type, enabled=False):
            pairs = similarities(first.embedding, second.embedding, features.positive_mask)
            whole, _, _ = info_nce(pairs, 1 / self.temperature, image_weight=self.image_weight)
            regions, sentences = LocalEntries.of(first), LocalEntries.of(second)
            by_regions, by_sentences = self.attention(regions, sentences)
            region = self._local_loss(regions, by_regions, self._positives(regions.values))
            sentence = self._local_loss(sentences, by_sentences)
            total = self.global_weight * whole + self.region_weight * region + self.sentence_weight * sentence
        terms = {"global": whole, "region": region, "sentence": sentence}
        return LossOutput(total, {name: term.detach() for name, term in terms.items()})

    def check_regions(self, count: int) -> None:
        """Make sure that so many regions are a grid.

        Raises:
            RecipeError: They are not.
        """
        self._grid(count)

    def _local_loss(
        self, entries: LocalEntries, mixtures: Mixtures, positives: Tensor | None = None
    ) -> Tensor:
        there, back = local_contrastive(
            mixtures.cosines(entries.values),
            entries.weights,
            entries.mask,
            temperature=self.local_temperature,
            positives=positives,
        )
        return there + back

    def _positives(self, regions: Tensor) -> Tensor:
        """Positives (K, K) of the regions; made once for each size of the grid."""
        count = regions.shape[1]
        if self.positives is None or len(self.positives) != count:
            height, width = self._grid(count)
            positives = grid_positives(height, width, reach=self.reach)
            self.positives = positives.to(regions.device, non_blocking=True)
        return self.positives.to(regions.dtype)

    def _grid(self, count: int) -> tuple[int, int]:
        """Rows and columns of so many regions."""
        height, width = self.grid or (math.isqrt(count), math.isqrt(count))
        if height * width != count:
            raise RecipeError(
                f"The image tower gives {count} regions, which are no grid of {height} x {width}: "
                "set objective.grid to its rows and columns."
            )
        return height, width

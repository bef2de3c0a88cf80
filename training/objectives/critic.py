"""RECLAIM's critic: it scores whether two features belong together, and is 1-Lipschitz in both at once."""

import math
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, relu
from torch.utils.checkpoint import checkpoint

PAIRS_AT_ONCE: Final = 2**15
# Eigenvalues smaller by a share x keep a weight of (1 - x) ** (4 ** 8), which moves it by 3e-6 at most.
_FOURTH_POWERS: Final = 8


class SpectralLinear(nn.Linear):
    """A linear layer whose weight is divided by its largest singular value (Miyato et al. 2018).

    That value is computed and not followed by power iteration: it is right from the first step on, and there
    is no state beside the weight. The narrow layers of a critic make that cheap.
    """

    def normalised_weight(self) -> Tensor:
        """The weight (out, in) with largest singular value 1."""
        return self.weight / largest_singular_value(self.weight)

    def forward(self, input: Tensor) -> Tensor:
        """The image (..., out) of vectors (..., in)."""
        return linear(input, self.normalised_weight(), self.bias)


def largest_singular_value(matrix: Tensor) -> Tensor:
    """Scalar, with gradient, of a matrix (M, N): the root of the Gram matrix's largest eigenvalue.

    The smaller of the two Gram matrices is raised to powers until only the space of its largest eigenvalue is
    left, with an error of at most 3e-6. A solver would wait for a GPU to look for errors. A matrix of zeros
    gives a tiny positive number; a matrix that is not finite gives NaN, and the run stops at a loss that is
    no number.
    """
    gram = matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix
    tiny = torch.finfo(matrix.dtype).tiny
    space = gram.detach() / gram.detach().diagonal().sum().clamp(min=tiny)
    for _ in range(_FOURTH_POWERS):
        space = torch.linalg.matrix_power(space, 4)
        space = space / space.diagonal().sum().clamp(min=tiny)
    # Rayleigh's quotient: its gradient by the Gram matrix is the space itself.
    return (gram * space).sum().clamp(min=tiny).sqrt()


class Critic(nn.Module):
    """Two projections to one width, concatenated, and three layers with ReLU (RECLAIM, section 3.2).

    Concatenation keeps the joint distance and no layer stretches any, so
    `|critic(u, v) - critic(u', v')| <= sqrt(|u - u'|^2 + |v - v'|^2)` (equation 5). Without `spectral_norm`
    it is the plain network of the paper's ablation, which has no such bound.
    """

    def __init__(
        self, first_width: int, second_width: int, *, width: int = 64, spectral_norm: bool = True
    ) -> None:
        super().__init__()
        layer = SpectralLinear if spectral_norm else nn.Linear
        self.first = layer(first_width, width)
        self.second = layer(second_width, width)
        self.hidden = nn.ModuleList([layer(2 * width, width), layer(width, width)])
        self.score = layer(width, 1)

    def scorer(self) -> "Scorer":
        """The critic with its weights of now, divided once for any number of pairs."""
        layers = (layer for layer in self.modules() if isinstance(layer, nn.Linear))
        first, second, joined, hidden, score = ((_weight(layer), layer.bias) for layer in layers)
        return Scorer(first, second, joined, hidden, score)

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """Scores (...) of pairs, as `Scorer` gives them."""
        return self.scorer().scores(first, second)


@dataclass(frozen=True, slots=True)
class Scorer:
    """The layers of a critic, each a weight (out, in) and a bias (out,).

    Attributes:
        first: Projects the first feature.
        second: Projects the second.
        joined: Takes both projections, one behind the other.
        hidden: Follows.
        score: Gives the one number.
    """

    first: tuple[Tensor, Tensor]
    second: tuple[Tensor, Tensor]
    joined: tuple[Tensor, Tensor]
    hidden: tuple[Tensor, Tensor]
    score: tuple[Tensor, Tensor]

    def scores(self, first: Tensor, second: Tensor) -> Tensor:
        """Scores of pairs.

        The layer that takes both projections adds a product with each, so no pair is ever written out before
        it. Of many pairs what follows is computed again in backward, some at a time.

        Args:
            first: (..., D1).
            second: (..., D2). One of the two may be (b, 1, D), to stand against (b, K, D) or (1, K, D) of the
                other.

        Returns:
            (...), the logit of the probability that the two belong together.
        """
        weight, bias = self.joined
        of_first, of_second = weight.tensor_split(2, dim=1)
        left = linear(linear(first, *self.first), of_first)
        right = linear(linear(second, *self.second), of_second, bias)
        shape = [max(sizes) for sizes in zip(left.shape[:-1], right.shape[:-1], strict=True)]
        at_once = max(1, PAIRS_AT_ONCE // math.prod(shape[:-1]))
        if len(shape) < 2 or shape[-1] <= at_once:
            return self._of_parts(left, right)
        chunks = [slice(start, start + at_once) for start in range(0, shape[-1], at_once)]
        return torch.cat([self._recomputed(_part(left, c), _part(right, c)) for c in chunks], dim=-1)

    def _of_parts(self, left: Tensor, right: Tensor) -> Tensor:
        """Scores of what both features of a pair add to the joined layer."""
        return linear(relu(linear(relu(left + right), *self.hidden)), *self.score).squeeze(-1)

    def _recomputed(self, left: Tensor, right: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            return self._of_parts(left, right)
        scores: Tensor = checkpoint(
            self._of_parts, left, right, use_reentrant=False, preserve_rng_state=False
        )
        return scores


def _weight(layer: nn.Linear) -> Tensor:
    return layer.normalised_weight() if isinstance(layer, SpectralLinear) else layer.weight


def _part(features: Tensor, chunk: slice) -> Tensor:
    """Some of the K entries (..., K, D); the one that stands against all of them stays."""
    return features if features.shape[-2] == 1 else features[..., chunk, :]

"""RECLAIM's critic: it scores whether two features belong together, and is 1-Lipschitz in both at once."""

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, relu


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

    The smaller of the two Gram matrices is taken. A matrix of zeros gives a tiny positive number.
    """
    gram = matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix
    largest: Tensor = torch.linalg.eigvalsh(gram)[-1]
    return largest.clamp(min=torch.finfo(matrix.dtype).tiny).sqrt()


class Critic(nn.Module):
    """Two projections to one width, concatenated, and three layers with ReLU (RECLAIM, section 3.2).

    Concatenation keeps the joint distance and no layer stretches any, so
    `|critic(u, v) - critic(u', v')| <= sqrt(|u - u'|^2 + |v - v'|^2)` (equation 5).
    """

    def __init__(self, first_width: int, second_width: int, *, width: int = 64) -> None:
        super().__init__()
        self.first = SpectralLinear(first_width, width)
        self.second = SpectralLinear(second_width, width)
        self.hidden = nn.ModuleList([SpectralLinear(2 * width, width), SpectralLinear(width, width)])
        self.score = SpectralLinear(width, 1)

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """Scores of pairs.

        Args:
            first: (..., D1).
            second: (..., D2). One of the two may be (b, 1, D), to stand against (b, K, D) of the other.

        Returns:
            (...), the logit of the probability that the two belong together.
        """
        left, right = self.first(first), self.second(second)
        shape = max(left.shape, right.shape)
        joined = torch.cat([left.expand(shape), right.expand(shape)], dim=-1)
        for layer in self.hidden:
            joined = relu(layer(joined))
        scores: Tensor = self.score(joined).squeeze(-1)
        return scores

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

    The smaller of the two Gram matrices is taken. A matrix of zeros gives a tiny positive number, and one
    that is not finite gives NaN, where the solver would fail: a run then stops at a loss that is no number.
    """
    gram = matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix
    finite = gram.isfinite().all()
    largest: Tensor = torch.linalg.eigvalsh(gram.where(finite, torch.zeros_like(gram)))[-1]
    root = largest.clamp(min=torch.finfo(matrix.dtype).tiny).sqrt()
    return root.where(finite, torch.full_like(root, torch.nan))


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

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """Scores of pairs.

        Args:
            first: (..., D1).
            second: (..., D2). One of the two may be (b, 1, D), to stand against (b, K, D) or (1, K, D) of the
                other.

        Returns:
            (...), the logit of the probability that the two belong together.
        """
        left, right = self.first(first), self.second(second)
        shape = [max(sizes) for sizes in zip(left.shape, right.shape, strict=True)]
        joined = torch.cat([left.expand(shape), right.expand(shape)], dim=-1)
        for layer in self.hidden:
            joined = relu(layer(joined))
        scores: Tensor = self.score(joined).squeeze(-1)
        return scores
